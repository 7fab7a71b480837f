"""Retrying: policies, backoff, classification, the retry budget, and the decision what happens next."""
