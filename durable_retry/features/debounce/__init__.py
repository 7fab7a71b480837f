"""Debouncing: of submissions that follow each other closely, only the last one runs."""

from typing import Final

from durable_retry.features.debounce.names import DEBOUNCE
from durable_retry.plugins import Plugin
from durable_retry.runtime.deferred import imported


def _subscribe() -> None:
    imported("durable_retry.features.debounce.facts:record_facts")()


PLUGIN: Final = Plugin(
    name="debounce",
    entities=(DEBOUNCE,),
    members="durable_retry.features.debounce.rules:MEMBERS",
    gate="debounce",
    subscribe=_subscribe,
)
