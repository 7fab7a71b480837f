"""The entity `idempotency_record`, one per key: one key means one operation.

The rules are `engine.operations.idempotency`. Its key is the operation id. Every entity operation takes and
returns plain JSON; time comes in with the request.
"""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from durable_retry.engine.base.instants import from_rfc3339, optional_from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import IDEMPOTENCY_RECORD
from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.facts import OperationEnded
from durable_retry.engine.operations.idempotency import KeyRecord, claim, complete, expire, removes_itself
from durable_retry.facts import report
from durable_retry.settings.upkeep import retention_settings

blueprint = df.Blueprint()


class IdempotencyRecord(DurableEntity):
    """The record of one key."""

    def claim(self, request: dict[str, Any]) -> dict[str, Any]:
        """Claim the key, before any side effect.

        Args:
            request: `owner`, `fingerprint`, `now`, `accepted_at`, `replay`.

        Returns:
            `answer`, a `ClaimAnswer`; `run`, the run number of the claim; `document`: the status document of
            a finished operation, else None.
        """
        claimed = claim(
            self._stored_record(),
            owner=request["owner"],
            fingerprint=request["fingerprint"],
            now=from_rfc3339(request["now"]),
            accepted_at=optional_from_rfc3339(request.get("accepted_at")),
            replay=request.get("replay", False),
        )
        self.set_state(claimed.record.to_json())
        document = claimed.record.document
        return {
            "answer": claimed.answer.value,
            "run": claimed.record.run,
            "document": None if document is None else dict(document),
        }

    def complete(self, request: dict[str, Any]) -> None:
        """Store the final status document; schedule the record's expiry, unless retention removes it.

        Args:
            request: `owner`, `fingerprint`, `document`, `now`, `ttl_seconds`, `run`, `trace`.
        """
        before, now = self._stored_record(), from_rfc3339(request["now"])
        record = complete(
            before,
            owner=request["owner"],
            fingerprint=request["fingerprint"],
            document=request["document"],
            now=now,
            ttl_seconds=request["ttl_seconds"],
            run=request.get("run"),
        )
        self.set_state(record.to_json())
        if record is not before:
            # Every end passes here once, and an entity is never replayed: the place to report it.
            report(OperationEnded(request["document"], TraceContext.from_json(request.get("trace"))))
        if record.expires_at is not None and removes_itself(record, now, retention_settings().history_for):
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
