"""The circuit breaker of one dependency, shared by every instance. See `README.md` and `docs/circuit.md`."""
