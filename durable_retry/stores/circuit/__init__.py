"""The circuit entity, and the cached circuit state of this process."""
