"""The command line of Durable Retry: a client of its HTTP API, and of nothing else."""
