"""Retrying: policies, backoff, classification, the decision after an attempt, and the retry loop."""
