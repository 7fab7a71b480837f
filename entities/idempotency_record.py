"""The entity `idempotency_record`, one per key of a caller: how its operation ended.

The rules are `rules.operations.keys`. Its key is the operation id. Every entity operation takes and
returns plain JSON; time comes in with the request.
"""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from durable_retry.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.base.names import IDEMPOTENCY_RECORD
from durable_retry.rules.operations.keys import (
    KeyCompletion,
    KeyRecord,
    complete,
    expire,
    removes_itself,
)
from durable_retry.settings.retention import retention

blueprint = df.Blueprint()


class IdempotencyRecord(DurableEntity):
    """The record of one key."""

    def complete(self, request: dict[str, Any]) -> None:
        """Store the end by a `KeyCompletion`; schedule the record's expiry, unless retention removes it."""
        completion = KeyCompletion.from_json(request)
        record = complete(self._stored_record(), completion)
        self.set_state(record.to_json())
        if removes_itself(record, completion.now, retention().history_for):
            self.signal_entity(
                self.entity_context.entity_id,
                "expire",
                {"now": to_rfc3339(record.expires_at)},
                signal_time=record.expires_at,
            )

    def expire(self, request: dict[str, Any]) -> None:
        """Drop the record if its time is over; an early signal changes nothing."""
        record = expire(self._stored_record(), now=from_rfc3339(request["now"]))
        self.set_state(None if record is None else record.to_json())

    def _stored_record(self) -> KeyRecord | None:
        state = self.get_state(dict)
        return None if state is None else KeyRecord.from_json(state)


blueprint.function_name(IDEMPOTENCY_RECORD)(
    blueprint.entity_trigger(context_name="context", entity_name=IDEMPOTENCY_RECORD)(IdempotencyRecord)
)
