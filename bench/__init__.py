"""Measures what the engine costs beside plain durable functions doing the same work: `python -m bench`."""
