"""A package, so that the fixtures of its scope end with it: those of a mere folder last for the session."""
