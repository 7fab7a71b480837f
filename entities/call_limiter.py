"""The entity `call_limiter`, one per dependency with limits. The rules are in `features/limits`.

Time is the clock of the machine that runs the entity, as for `circuit_breaker`; answers carry durations.
"""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from durable_retry.base.names import CALL_LIMITER
from durable_retry.features.limits.names import CALL_NEXT
from durable_retry.features.limits.rules.limiter import Limiter, acquire, give_back, leave, reset
from durable_retry.features.limits.rules.successor import with_successor
from durable_retry.hub.orchestrations import start_from_entity
from durable_retry.rules.retry.slots import Leaving, Slot, SlotRequest
from durable_retry.runtime import clock

blueprint = df.Blueprint()


class CallLimiter(DurableEntity):
    """Operation `acquire` is called by an orchestration that starts an attempt; the others are signals."""

    def acquire(self, request: dict[str, Any]) -> dict[str, Any]:
        """Grant a slot, or return when to ask again. Input: `SlotRequest`; answer: `SlotAnswer`."""
        limiter, answer = acquire(self._stored_limiter(), SlotRequest.from_json(request), clock.now())
        self.set_state(limiter.to_json())
        return answer.to_json()

    def give_back(self, request: dict[str, Any]) -> None:
        """Free a slot. Input: the `Slot` that was granted."""
        self._call_next(give_back(self._stored_limiter(), Slot.from_json(request), clock.now()))

    def leave(self, request: dict[str, Any]) -> None:
        """Free the place of an attempt that waits no more. Input: `Leaving`."""
        limiter = leave(self._stored_limiter(), Leaving.from_json(request), clock.now())
        if limiter.leases:  # Whoever gives one of them back comes yet.
            self.set_state(limiter.to_json())
        else:
            self._call_next(limiter)

    def reset(self, _message: dict[str, Any]) -> None:
        """Forget who waits."""
        self.set_state(reset(self._stored_limiter()).to_json())

    def _call_next(self, limiter: Limiter) -> None:
        limiter, waiter = with_successor(limiter)
        self.set_state(limiter.to_json())
        if waiter is not None:
            given = {"waiter": waiter, "dependency": self.entity_context.entity_id.key}
            start_from_entity(self.entity_context, CALL_NEXT, given)

    def _stored_limiter(self) -> Limiter:
        return Limiter.from_json(self.get_state(dict) or {})


blueprint.function_name(CALL_LIMITER)(
    blueprint.entity_trigger(context_name="context", entity_name=CALL_LIMITER)(CallLimiter)
)
