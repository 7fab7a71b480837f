"""Recording: a metric, a log line and a span for what happens to operations and circuits."""

from typing import Final

from durable_retry.plugins import Plugin
from durable_retry.runtime.deferred import imported


def _subscribe() -> None:
    imported("durable_retry.features.recording.events:record_facts")()


PLUGIN: Final = Plugin(name="recording", subscribe=_subscribe)
