"""Retention: what is past its time is removed."""

from collections.abc import Iterator
from typing import Final

import azure.durable_functions as df

from durable_retry.features.retention.names import REMOVE_PAST, RETENTION
from durable_retry.plugins import Activities, Orchestration, Plugin
from durable_retry.runtime.deferred import imported


def _timers() -> Iterator[df.Blueprint]:
    yield imported("durable_retry.features.retention.timers:blueprint")


PLUGIN: Final = Plugin(
    name=RETENTION,
    # A timer looks after it.
    orchestrations=(Orchestration(name=RETENTION, prefix=f"{RETENTION}-", is_watched=False),),
    orchestrators=(RETENTION,),
    activities=(Activities(module=RETENTION, with_hub=(REMOVE_PAST,)),),
    blueprints=_timers,
    each_round=("durable_retry.features.retention.rounds:look_at_all",),
)
