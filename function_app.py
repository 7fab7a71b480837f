"""The function app: every blueprint registered, nothing else. The host indexes this file."""

import azure.durable_functions as df

from activities import attempt, commit, dead_letter, publish, wake_waiting
from entities import circuit_breaker, idempotency_record
from orchestrators import operation, outbox, release_waiting
from stores.configuration import load_app
from triggers import (
    circuits,
    dependencies,
    health,
    operation_list,
    operation_steering,
    operations,
    operations_queue,
    outbox_events,
    policies,
)

load_app()

app = df.DFApp()

for module in (
    operations,
    operation_list,
    operation_steering,
    operations_queue,
    outbox_events,
    policies,
    dependencies,
    circuits,
    health,
    operation,
    outbox,
    release_waiting,
    attempt,
    commit,
    publish,
    dead_letter,
    wake_waiting,
    idempotency_record,
    circuit_breaker,
):
    app.register_functions(module.blueprint)
