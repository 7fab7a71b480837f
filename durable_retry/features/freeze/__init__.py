"""Freeze: everything is accepted and nothing starts, until a thaw lets what waits go in waves."""

from typing import Final

from durable_retry.features.freeze.names import COUNT_FROZEN, FREEZE, KEEP_FROZEN, PREFIX, WAKE_FROZEN
from durable_retry.plugins import Activities, Collection, Orchestration, Plugin

PLUGIN: Final = Plugin(
    name=FREEZE,
    collections=(Collection("hold/{*rest}", ("durable_retry.features.freeze.routes:routes",)),),
    orchestrations=(Orchestration(name=FREEZE, prefix=PREFIX, is_restarted=True),),
    orchestrators=("freeze",),
    activities=(Activities(module="freeze", with_hub=(KEEP_FROZEN, COUNT_FROZEN, WAKE_FROZEN)),),
)
