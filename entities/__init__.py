"""Durable entities: thin shells over the state machines in `engine`."""
