"""Metrics of dependencies over time, in minutes and hours."""
