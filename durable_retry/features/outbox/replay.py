"""The replay of the dead letter of an event: it is sent again under its id."""

from datetime import datetime

from durable_retry.features.outbox.event_store import find_event
from durable_retry.features.outbox.rules.outbox import event_id_in
from durable_retry.features.outbox.sending import resend
from durable_retry.hub.task_hub import TaskHub
from durable_retry.replay.actions import Case, refuse_edits
from durable_retry.rules.dead_letters.record import KeptDeadLetter
from durable_retry.rules.dead_letters.replay import Prepared, ReplayBody
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.runtime import clock


class EventCase(Case):
    """An event that could not be delivered is sent again; its operation has succeeded."""

    @staticmethod
    def prepare(record: KeptDeadLetter, edits: ReplayBody, now: datetime) -> Prepared:  # noqa: ARG004
        refuse_edits(edits, edits.edits, "an event")
        return Prepared(OperationInput.from_json(record.operation or {}), ())

    async def start(self, hub: TaskHub) -> None:
        await resend(hub, event_id_in(self.record), clock.now())

    async def was_started(self, hub: TaskHub) -> bool:  # noqa: ARG002 - its row says so
        """Return whether the event became pending again since this was asked for, or its row is gone."""
        row = await find_event(event_id_in(self.record))
        return row is None or row.event.pending_since >= self.requested_at
