"""Recovery: the dead letters of an outage are replayed once the circuit has been closed for a while."""
