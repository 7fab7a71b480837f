"""Azure storage and the task hub, each behind small named functions. See README.md."""
