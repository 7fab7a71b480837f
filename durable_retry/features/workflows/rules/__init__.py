"""Batches and sagas, and the references between their parts."""
