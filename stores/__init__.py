"""Storage, the durable client, settings and the clock, each behind small named functions."""
