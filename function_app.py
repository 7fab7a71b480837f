"""The function app: every blueprint registered, nothing else. The host indexes this file."""

import azure.durable_functions as df

from activities import attempt, batch_step, commit, dead_letter, publish, submit, wake_waiting
from entities import circuit_breaker, idempotency_record
from orchestrators import batch, operation, outbox, release_waiting, saga
from stores.configuration import load_app
from triggers import (
    batches,
    circuits,
    dependencies,
    health,
    operation_list,
    operation_steering,
    operations,
    outbox_events,
    policies,
    sagas,
)
from triggers.sources import source_blueprints

load_app()

app = df.DFApp()

for module in (
    operations,
    operation_list,
    operation_steering,
    outbox_events,
    batches,
    sagas,
    policies,
    dependencies,
    circuits,
    health,
    operation,
    outbox,
    batch,
    saga,
    release_waiting,
    attempt,
    commit,
    publish,
    submit,
    batch_step,
    dead_letter,
    wake_waiting,
    idempotency_record,
    circuit_breaker,
):
    app.register_functions(module.blueprint)

for blueprint in source_blueprints():
    app.register_functions(blueprint)
