"""The function app: every blueprint registered, nothing else. The host indexes this file."""

import os

import azure.durable_functions as df

from activities import attempt, batch_step, commit, dead_letter, publish, replay_steps, submit, wake_waiting
from entities import circuit_breaker, idempotency_record
from orchestrators import batch, operation, outbox, release_waiting, replay, saga
from stores.configuration import load_app
from stores.telemetry_settings import receivers_in
from telemetry.start import start_telemetry
from triggers import (
    batches,
    circuits,
    dashboard,
    dead_letter_changes,
    dead_letter_replays,
    dead_letters,
    dependencies,
    health,
    maintenance,
    openapi,
    operation_list,
    operation_steering,
    operation_summary,
    operations,
    operations_poison,
    outbox_events,
    policies,
    sagas,
    watch,
)
from triggers.sources import source_blueprints

start_telemetry(receivers_in(os.environ))
load_app()

app = df.DFApp()

for module in (
    operations,
    operation_list,
    operation_steering,
    operation_summary,
    outbox_events,
    batches,
    sagas,
    dead_letters,
    dead_letter_changes,
    dead_letter_replays,
    operations_poison,
    watch,
    maintenance,
    policies,
    dependencies,
    circuits,
    health,
    openapi,
    dashboard,
    operation,
    outbox,
    batch,
    saga,
    replay,
    release_waiting,
    attempt,
    commit,
    publish,
    submit,
    batch_step,
    dead_letter,
    replay_steps,
    wake_waiting,
    idempotency_record,
    circuit_breaker,
):
    app.register_functions(module.blueprint)

for blueprint in source_blueprints():
    app.register_functions(blueprint)
