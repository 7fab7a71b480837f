"""Runs any Durable Functions Python app on one machine, on real parts wherever a real part exists."""
