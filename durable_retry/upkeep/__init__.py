"""Upkeep: what finishes, repairs and removes while nobody watches; the health of the app."""
