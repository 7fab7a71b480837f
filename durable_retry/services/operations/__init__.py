"""Use cases of an operation."""
