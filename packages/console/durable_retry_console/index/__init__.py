"""The index of operations: its tables, who notes in it, and what keeps it right."""
