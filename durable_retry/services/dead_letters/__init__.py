"""Use cases of a dead letter."""
