"""One operation: started once, looked at, steered, and kept as it ended."""
