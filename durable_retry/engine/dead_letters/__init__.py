"""Dead letters: the record, its legal changes, filters, edits and bulk replay."""
