"""Batches in tables, sagas in the task hub."""
