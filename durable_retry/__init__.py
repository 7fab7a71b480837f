"""Durable Retry: operations on other services, tried until they succeed, fail for good, or are cancelled."""
