"""The entity `idempotency_record`, one per key: one key means one operation.

The rules are `engine.operations.idempotency`. Its key is the operation id. Every entity operation takes and
returns plain JSON; time comes in with the request.
"""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from durable_retry.engine.base.instants import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import IDEMPOTENCY_RECORD
from durable_retry.engine.facts import OperationEnded
from durable_retry.engine.operations.idempotency import (
    ClaimReply,
    ClaimRequest,
    KeyCompletion,
    KeyRecord,
    claim,
    complete,
    expire,
    removes_itself,
)
from durable_retry.facts import report
from durable_retry.settings.upkeep import retention_settings

blueprint = df.Blueprint()


class IdempotencyRecord(DurableEntity):
    """The record of one key."""

    def claim(self, request: dict[str, Any]) -> dict[str, Any]:
        """Claim the key by a `ClaimRequest`, before any side effect; return a `ClaimReply`."""
        claimed = claim(self._stored_record(), ClaimRequest.from_json(request))
        record = claimed.record
        self.set_state(record.to_json())
        return ClaimReply(answer=claimed.answer, run=record.run, document=record.document).to_json()

    def complete(self, request: dict[str, Any]) -> None:
        """Store the end by a `KeyCompletion`; schedule the record's expiry, unless retention removes it."""
        before, completion = self._stored_record(), KeyCompletion.from_json(request)
        record = complete(before, completion)
        self.set_state(record.to_json())
        if record is not before:
            # Every end passes here once, and an entity is never replayed: the place to report it.
            report(OperationEnded(completion.document, completion.trace))
        history_for = retention_settings().history_for
        if record.expires_at is not None and removes_itself(record, completion.now, history_for):
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
