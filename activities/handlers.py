"""The app's own handlers: see docs/handlers.md, and `examples/handlers.py` for one to copy."""
