"""Batches and sagas: many operations as one, and one after the other with an undo of what was done."""

from typing import Final

from durable_retry.features.workflows import names
from durable_retry.plugins import Activities, Collection, Orchestration, Plugin

PLUGIN: Final = Plugin(
    name="workflows",
    collections=(
        Collection("batches/{*rest}", ("durable_retry.features.workflows.routes:batch_routes",)),
        Collection("sagas/{*rest}", ("durable_retry.features.workflows.routes:saga_routes",)),
    ),
    orchestrations=(
        Orchestration(name=names.BATCH, prefix="batch-", is_restarted=True),
        Orchestration(name=names.SAGA, prefix="saga-", is_restarted=True, is_listed=True),
    ),
    orchestrators=("batch", "saga"),
    activities=(
        Activities(
            module="workflows",
            with_hub=(names.SUBMIT, names.BATCH_STEP),
            without_hub=(names.BATCH_CLOSE, names.BEGIN_RESTART, names.END_RESTART),
        ),
    ),
    settings=("durable_retry.features.workflows.settings:WorkflowSettings",),
    own_sources=("batch", "saga"),
    tables=("durable_retry.features.workflows.batch_store:TABLE",),
    retention={"batches": "durable_retry.features.workflows.removal:BATCHES"},
    replay_checks={"saga": "durable_retry.features.workflows.rules.references:refuse_unfilled"},
)
