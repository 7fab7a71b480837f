"""The task hub's SQLite store: what is on disk, and the transactions that change it."""
