"""The overview: everything at a glance in one answer."""
