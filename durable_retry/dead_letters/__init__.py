"""Dead letters and their root causes."""
