"""Manual control of circuits, and waking what waits for them."""

from typing import Final

from durable_retry.features.circuit_controls.names import RELEASE_WAITING, WAKE_WAITING
from durable_retry.plugins import Activities, Collection, Orchestration, Plugin

PLUGIN: Final = Plugin(
    name="circuit_controls",
    collections=(Collection("circuits/{*rest}", ("durable_retry.features.circuit_controls.routes:routes",)),),
    orchestrations=(Orchestration(name=RELEASE_WAITING, prefix="release-", is_restarted=True),),
    orchestrators=("wake_waiting",),
    activities=(Activities(module="circuit_controls", with_hub=(WAKE_WAITING,)),),
)
