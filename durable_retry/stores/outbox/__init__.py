"""Outbox events in tables, and the index of what is pending."""
