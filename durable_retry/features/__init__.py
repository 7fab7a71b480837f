"""Features: each is one folder that plugs in, and that the core imports nothing of."""
