"""Event Grid: events in the CloudEvents or the Event Grid schema, delivered one by one.

The parameter is the event's own JSON text: the binding's typed form cannot read what is not an object, and
fails before any code of ours runs. Event Grid itself delivers again, for a day, what fails here.
"""

from typing import Final

import azure.durable_functions as df

from durable_retry.engine.intake.message import Arrival
from durable_retry.services.intake import intake

blueprint = df.Blueprint()

SOURCE: Final = "event_grid"


@blueprint.event_grid_trigger(arg_name="event")
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def operations_event_grid(event: str, hub: str) -> None:
    """Start the operation that an event holds."""
    await intake().accept(hub, Arrival(source=SOURCE, body=event.encode(errors="surrogatepass")))
