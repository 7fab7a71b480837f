"""Traces, metrics and log fields, through the OpenTelemetry API."""
