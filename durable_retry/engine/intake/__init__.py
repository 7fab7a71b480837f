"""Messages from sources other than HTTP: envelopes, keys, schedules, backpressure."""
