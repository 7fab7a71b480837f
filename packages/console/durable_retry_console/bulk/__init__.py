"""Bulk actions: the same act on all that a filter finds, at a rate."""
