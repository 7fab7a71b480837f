"""Dead letters: the record, its legal changes, filters and edits."""
