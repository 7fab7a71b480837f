"""Rows of the outbox, and their index."""
