"""Upkeep: what repairs, completes and removes while nobody watches."""
