"""The entity `call_limiter`, one per dependency with limits. The rules are in `features/limits`.

Time is the clock of the machine that runs the entity, as for `circuit_breaker`; answers carry durations.
"""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from durable_retry.base.json_forms import from_ms, to_ms
from durable_retry.base.names import CALL_LIMITER
from durable_retry.features.limits.names import CALL_NEXT, LOOK
from durable_retry.features.limits.rules.calls import look, next_look, successors
from durable_retry.features.limits.rules.limiter import acquire, change, give_back, leave, reset
from durable_retry.features.limits.rules.settings import ReadLimits
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.hub.orchestrations import start_from_entity
from durable_retry.rules.retry.slots import Leaving, Slot, SlotRequest
from durable_retry.runtime import clock

blueprint = df.Blueprint()


class CallLimiter(DurableEntity):
    """Operation `acquire` is called by an orchestration that starts an attempt; the others are signals.

    The entity sends `look` to itself.
    """

    def acquire(self, request: dict[str, Any]) -> dict[str, Any]:
        """Grant a slot, or return when to ask again. Input: `SlotRequest`; answer: `SlotAnswer`."""
        limiter, answer = acquire(self._stored_limiter(), SlotRequest.from_json(request), clock.now())
        self._keep(*successors(limiter))
        return answer.to_json()

    def give_back(self, request: dict[str, Any]) -> None:
        """Free a slot. Input: the `Slot` that was granted."""
        self._keep(*successors(give_back(self._stored_limiter(), Slot.from_json(request), clock.now())))

    def leave(self, request: dict[str, Any]) -> None:
        """Free the place of an attempt that waits no more. Input: `Leaving`."""
        self._keep(*successors(leave(self._stored_limiter(), Leaving.from_json(request), clock.now())))

    def change(self, limits: dict[str, Any]) -> None:
        """Take limits that a worker has read. Input: `ReadLimits`."""
        self._keep(*successors(change(self._stored_limiter(), ReadLimits.from_json(limits), clock.now())))

    def look(self, message: dict[str, Any]) -> None:
        """Give slots that were offered and not taken to other instances. Input: `at`, the planned instant."""
        # By the clock of this machine it may come too early, and would be sent again and again.
        self._keep(*look(self._stored_limiter(), max(clock.now(), from_ms(message["at"]))))

    def reset(self, _message: dict[str, Any]) -> None:
        """Forget the instances that wait."""
        self._keep(*reset(self._stored_limiter()))

    def _keep(self, limiter: Limiter, called: tuple[str, ...] = ()) -> None:
        """Store a state, have those that are called told, and look again when that is due."""
        limiter, look_at = next_look(limiter)
        self.set_state(limiter.to_json())
        if called:
            input_ = {"waiters": called, "dependency": self.entity_context.entity_id.key}
            start_from_entity(self.entity_context, CALL_NEXT, input_)
        if look_at is not None:
            message = {"at": to_ms(look_at)}
            self.signal_entity(self.entity_context.entity_id, LOOK, message, signal_time=look_at)

    def _stored_limiter(self) -> Limiter:
        return Limiter.from_json(self.get_state(dict) or {})


blueprint.function_name(CALL_LIMITER)(
    blueprint.entity_trigger(context_name="context", entity_name=CALL_LIMITER)(CallLimiter)
)
