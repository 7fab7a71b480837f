"""Batches and sagas: many operations as one piece of work."""
