"""Sources of operations other than HTTP: what arrives, and what is scheduled."""
