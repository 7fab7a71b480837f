"""Limits: how many attempts at a dependency the whole fleet makes at once, and starts per second."""

from typing import Final

from durable_retry.base.names import CALL_LIMITER
from durable_retry.features.limits.names import CALL_NEXT, LIMITS
from durable_retry.plugins import Orchestration, Plugin

PLUGIN: Final = Plugin(
    name=LIMITS,
    entities=(CALL_LIMITER,),
    orchestrations=(Orchestration(name=CALL_NEXT, prefix="next-", is_watched=False),),
    orchestrators=("call_limiter",),
    dependency="durable_retry.features.limits.rules.settings:LimitKeys",
    limits="durable_retry.features.limits.worker",
    circuits="durable_retry.features.limits.circuits:DOCUMENTS",
)
