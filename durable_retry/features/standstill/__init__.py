"""Standstill: nudges orchestrations whose next turn does not come, and names those that no nudge moves."""

from typing import Final

from durable_retry.features.standstill.names import PASS_QUEUE, QUEUE_CHECK
from durable_retry.plugins import Activities, Collection, Orchestration, Plugin

PLUGIN: Final = Plugin(
    name="standstill",
    collections=(Collection("diagnoses/{*rest}", ("durable_retry.features.standstill.routes:routes",)),),
    # A queue check waits for nothing: upkeep need not watch it.
    orchestrations=(Orchestration(name=QUEUE_CHECK, prefix=f"{QUEUE_CHECK}-", is_watched=False),),
    orchestrators=("queue_check",),
    activities=(Activities(module="queue_check", without_hub=(PASS_QUEUE,)),),
    settings=("durable_retry.features.standstill.settings:StandstillSettings",),
    look="durable_retry.features.standstill.stuck:StuckLook",
    unwatched="durable_retry.features.standstill.stuck:nudge_if_lost",
    health={"stuck": "durable_retry.features.standstill.trouble:stuck_part"},
    diagnosis={"stuck": "durable_retry.features.standstill.trouble:why_stuck"},
)
