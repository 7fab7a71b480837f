"""Handlers: functions of the app that operations run, with remembered steps and heartbeats."""

from typing import Final

from durable_retry.plugins import Collection, Plugin

PLUGIN: Final = Plugin(
    name="handlers",
    collections=(Collection("handlers", ("durable_retry.features.handlers.routes:routes",)),),
    settings=("durable_retry.features.handlers.settings:HandlerSettings",),
    handlers="durable_retry.features.handlers",
    status="durable_retry.features.handlers.shown:with_steps",
    tables=("durable_retry.features.handlers.records:TABLE",),
    retention={"steps": "durable_retry.features.handlers.removal:STEPS"},
)
