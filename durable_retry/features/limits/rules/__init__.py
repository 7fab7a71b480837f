"""Limits of calls: their settings, and the slots that are lent."""
