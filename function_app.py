"""The function app: every blueprint registered, nothing else. The host indexes this file."""

import azure.durable_functions as df

from activities import attempt, commit, dead_letter
from entities import idempotency_record
from orchestrators import operation
from stores.configuration import load_app
from triggers import (
    dependencies,
    health,
    operation_list,
    operation_steering,
    operations,
    operations_queue,
    policies,
)

load_app()

app = df.DFApp()

for module in (
    operations,
    operation_list,
    operation_steering,
    operations_queue,
    policies,
    dependencies,
    health,
    operation,
    attempt,
    commit,
    dead_letter,
    idempotency_record,
):
    app.register_functions(module.blueprint)
