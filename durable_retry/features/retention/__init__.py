"""Retention: what is past its time is removed."""

from collections.abc import Iterator
from typing import Final

import azure.durable_functions as df

from durable_retry.features.retention.names import REMOVE_PAST, RETENTION
from durable_retry.plugins import Activities, Orchestration, Plugin
from durable_retry.runtime.deferred import imported

_HERE: Final = "durable_retry.features.retention"


def _timers() -> Iterator[df.Blueprint]:
    yield imported(f"{_HERE}.timers:blueprint")


PLUGIN: Final = Plugin(
    name=RETENTION,
    # A timer starts it again: upkeep need not watch it.
    orchestrations=(Orchestration(name=RETENTION, prefix=f"{RETENTION}-", is_watched=False),),
    orchestrators=(RETENTION,),
    activities=(Activities(module=RETENTION, with_hub=(REMOVE_PAST,)),),
    settings=(f"{_HERE}.settings:RetentionSettings",),
    kept_for=f"{_HERE}.settings:kept_for",
    blueprints=_timers,
    each_round=(f"{_HERE}.rounds:look_at_all",),
)
