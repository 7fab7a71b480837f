"""Durable orchestrations: they carry decisions out and decide nothing."""
