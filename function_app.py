"""The function app: every blueprint registered, nothing else. The host indexes this file."""

import os

import azure.durable_functions as df

import activities
import entities
import orchestrators
from durable_retry import triggers
from durable_retry.settings.configuration import load_app
from durable_retry.settings.telemetry import receivers_in
from durable_retry.telemetry import start_telemetry

start_telemetry(receivers_in(os.environ))
load_app()

app = df.DFApp()

for blueprint in (
    *triggers.blueprints(),
    *orchestrators.blueprints(),
    *activities.blueprints(),
    *entities.blueprints(),
):
    app.register_functions(blueprint)
