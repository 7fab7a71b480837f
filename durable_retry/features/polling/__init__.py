"""Polling: a dependency that accepts a request with 202 is asked until the work behind it has ended."""

from typing import Final

from durable_retry.features.polling.names import POLL, POLLING
from durable_retry.plugins import Activities, Plugin

PLUGIN: Final = Plugin(
    name=POLLING,
    activities=(Activities(module="polling", with_hub=(POLL,)),),
    dependency="durable_retry.features.polling.rules:PollKeys",
    members="durable_retry.features.polling.rules:MEMBERS",
    settle="polling",
)
