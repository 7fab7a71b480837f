"""The entity `circuit_breaker`, one per dependency: keeps the shared circuit. The rules are `engine/circuit`.

Time comes from the messages and not from a clock here. An entity operation has no deterministic time of its
own (the SDK's entity context offers none), and the instants that matter are those at which calls ended, which
only the sender knows; a batch that waited a minute in the entity's queue is a minute old. The state keeps the
latest instant it heard of, so that time never runs backwards, and a request for a probe or a hand corrects it
when a machine with a wrong clock has pushed it ahead.
"""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from engine.circuit import (
    ENTITY,
    Breaker,
    HandMessage,
    PermitMessage,
    ReportMessage,
    answer_to_json,
    breaker_from_json,
    breaker_to_json,
)
from telemetry.happenings import circuit_moved

blueprint = df.Blueprint()


class CircuitBreaker(DurableEntity):
    """Operations `report` and `hand` are signals; `permit` is called by an orchestration that wants to probe.

    A message that cannot be read raises, which rolls that one operation back and leaves the state as it was.
    """

    def report(self, message: dict[str, Any]) -> None:
        """Take a worker's news in. Input: `ReportMessage`."""
        before = self._stored()
        self._store(before, ReportMessage.from_json(message).apply(before))

    def permit(self, message: dict[str, Any]) -> dict[str, Any]:
        """Grant a probe, or say when to come back. Input: `PermitMessage`; answer: `answer_to_json`."""
        before = self._stored()
        breaker, answer = PermitMessage.from_json(message).apply(before)
        self._store(before, breaker)
        return answer_to_json(answer)

    def hand(self, message: dict[str, Any]) -> None:
        """Open, close, disable or reset. Input: `HandMessage`."""
        before = self._stored()
        self._store(before, HandMessage.from_json(message).apply(before))

    def _stored(self) -> Breaker:
        return breaker_from_json(self.get_state(dict))

    def _store(self, before: Breaker, breaker: Breaker) -> None:
        self.set_state(breaker_to_json(breaker))
        if breaker.state is not before.state:
            circuit_moved(self.entity_context.entity_id.key, before.state, breaker.state, breaker.reason)


blueprint.function_name(ENTITY)(
    blueprint.entity_trigger(context_name="context", entity_name=ENTITY)(CircuitBreaker)
)
