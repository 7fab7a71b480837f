"""What the documentation of azure-functions-durable 2.x shows, one blueprint per topic."""

import azure.durable_functions as df
import azure.functions as func
from accounts import blueprint as accounts  # type: ignore[import-not-found] # found beside this file
from durable_http import blueprint as durable_http  # type: ignore[import-not-found] # found beside this file
from exports import WRITER  # type: ignore[import-not-found] # found beside this file
from exports import blueprint as exports
from first_style import blueprint as first_style  # type: ignore[import-not-found] # found beside this file
from patterns import blueprint as patterns  # type: ignore[import-not-found] # found beside this file
from payloads import STORE  # type: ignore[import-not-found] # found beside this file
from payloads import blueprint as payloads
from schedules import blueprint as schedules  # type: ignore[import-not-found] # found beside this file

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
app.configure_scheduled_tasks()
app.configure_history_export(WRITER)
app.configure_large_payloads(payload_store=STORE)
for blueprint in (patterns, accounts, durable_http, first_style, payloads, schedules, exports):
    app.register_functions(blueprint)
