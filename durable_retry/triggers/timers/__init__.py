"""Timers: maintenance, alerts, the outbox sweeper, scheduled operations."""
