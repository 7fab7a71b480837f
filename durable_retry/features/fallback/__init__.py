"""Fallback: another dependency is asked while the circuit of the first is open."""

from typing import Final

from durable_retry.features.fallback.names import FALLBACK, LEAVE_DEPENDENCY
from durable_retry.plugins import Activities, Plugin

PLUGIN: Final = Plugin(
    name=FALLBACK,
    activities=(Activities(module="fallback", with_hub=(LEAVE_DEPENDENCY,)),),
    dependency="durable_retry.features.fallback.rules:FallbackKeys",
    members="durable_retry.features.fallback.rules:MEMBERS",
    attempt="durable_retry.features.fallback.stays:attempt_in_stay",
    decision="fallback",
)
