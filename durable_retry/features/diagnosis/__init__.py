"""Diagnosis: goes through each part that an operation needs, and says which one does not work."""

from typing import Final

from durable_retry.features.diagnosis.names import DIAGNOSE, DIAGNOSIS
from durable_retry.plugins import Activities, Collection, Orchestration, Plugin

PLUGIN: Final = Plugin(
    name="diagnosis",
    collections=(Collection("diagnoses/{*rest}", ("durable_retry.features.diagnosis.routes:routes",)),),
    # A person waits for its end: upkeep need not watch it.
    orchestrations=(Orchestration(name=DIAGNOSIS, prefix=f"{DIAGNOSIS}-", is_watched=False),),
    orchestrators=("diagnosis",),
    activities=(Activities(module="diagnosis", without_hub=(DIAGNOSE,)),),
)
