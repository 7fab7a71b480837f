"""The rules of the outbox."""
