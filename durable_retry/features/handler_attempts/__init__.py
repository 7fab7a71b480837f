"""Attempts of handlers: functions of the app, with remembered steps and heartbeats."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="handler_attempts",
    handlers="durable_retry.features.handler_attempts.attempt",
    status="durable_retry.features.handler_attempts.shown:with_steps",
    retention={"steps": "durable_retry.features.handler_attempts.removal:STEPS"},
)
