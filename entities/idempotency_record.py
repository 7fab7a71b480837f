"""The durable entity that makes one key mean one operation: a shell over `engine.idempotency`.

Its key is the operation id. Every operation takes and gives plain JSON; time comes in with the request.
"""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from engine.idempotency import Record, claim, complete, expire
from engine.instants import from_rfc3339, to_rfc3339
from engine.trace_context import TraceContext
from stores.task_hub import RECORD
from telemetry.happenings import operation_ended

blueprint = df.Blueprint()


class IdempotencyRecord(DurableEntity):
    """What is known of one key."""

    def claim(self, request: dict[str, Any]) -> dict[str, Any]:
        """Claim the key, before any side effect.

        Args:
            request: `owner`, `fingerprint`, `now`.

        Returns:
            `answer`, a `ClaimAnswer`, and `document`: the status document of a finished operation, else None.
        """
        claimed = claim(
            self._record(),
            owner=request["owner"],
            fingerprint=request["fingerprint"],
            now=from_rfc3339(request["now"]),
            replay=request.get("replay", False),
        )
        self.set_state(claimed.record.to_json())
        document = claimed.record.document
        return {"answer": claimed.answer.value, "document": None if document is None else dict(document)}

    def complete(self, request: dict[str, Any]) -> None:
        """Keep the final status document, and arrange for the record to expire.

        Args:
            request: `owner`, `fingerprint`, `document`, `now`, `ttl_seconds`, `trace`.
        """
        before = self._record()
        record = complete(
            before,
            owner=request["owner"],
            fingerprint=request["fingerprint"],
            document=request["document"],
            now=from_rfc3339(request["now"]),
            ttl_seconds=request["ttl_seconds"],
        )
        self.set_state(record.to_json())
        if record is not before:
            # Here every end passes once, whatever it is, and an entity is never replayed.
            operation_ended(request["document"], TraceContext.from_json(request.get("trace")))
        if record.expires_at is not None:
            self.signal_entity(
                self.entity_context.entity_id,
                "expire",
                {"now": to_rfc3339(record.expires_at)},
                signal_time=record.expires_at,
            )

    def expire(self, request: dict[str, Any]) -> None:
        """Drop the record if its time is over; an early or a late signal does nothing.

        Args:
            request: `now`.
        """
        record = expire(self._record(), now=from_rfc3339(request["now"]))
        self.set_state(None if record is None else record.to_json())

    def _record(self) -> Record | None:
        state = self.get_state(dict)
        return None if state is None else Record.from_json(state)


blueprint.function_name(RECORD)(
    blueprint.entity_trigger(context_name="context", entity_name=RECORD)(IdempotencyRecord)
)
