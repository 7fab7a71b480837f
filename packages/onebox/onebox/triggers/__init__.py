"""Triggers other than HTTP and durable ones: what starts a function, with which data, and when again."""
