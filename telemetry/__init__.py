"""Traces, metrics and log fields: what the app tells of itself, through the OpenTelemetry API.

The API alone does nothing; `telemetry.start` puts the SDK behind it when the settings name a receiver.
"""
