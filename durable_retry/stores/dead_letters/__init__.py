"""Dead letters in tables: records, lists, counters, changes under way."""
