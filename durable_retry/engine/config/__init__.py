"""`dependencies.toml`: its tables, their checks, and the dependencies that they describe."""
