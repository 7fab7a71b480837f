"""Dead letters that become operations again."""
