"""A Durable Functions app that shows each part of onebox: HTTP, queue, orchestrator, activity, entity."""

import azure.durable_functions as df
import azure.functions as func
from durable import blueprint as durable  # type: ignore[import-not-found] # found beside this file
from event_functions import blueprint as event_functions  # type: ignore[import-not-found] # found beside this file
from http_functions import blueprint as http_functions  # type: ignore[import-not-found] # found beside this file
from output_functions import blueprint as output_functions  # type: ignore[import-not-found] # found beside this file
from queue_functions import blueprint as queue_functions  # type: ignore[import-not-found] # found beside this file
from timer_functions import blueprint as timer_functions  # type: ignore[import-not-found] # found beside this file

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
app.register_functions(http_functions)
app.register_functions(durable)
app.register_functions(queue_functions)
app.register_functions(timer_functions)
app.register_functions(event_functions)
app.register_functions(output_functions)
