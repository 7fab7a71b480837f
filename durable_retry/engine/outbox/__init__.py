"""The outbox: follow-up events, their envelopes and signatures, and the order of their deliveries."""
