"""The Durable HTTP management API, as the Durable extension serves it."""
