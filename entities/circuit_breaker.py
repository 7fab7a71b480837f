"""The entity `circuit_breaker`, one per dependency, or per limit key of one; rules: `rules/circuit`.

Time is the clock of the machine that runs the entity, of which there is one at a time: an entity is not
replayed, so it may read it. The clocks of a fleet are assumed to be within two seconds of each other. The
state keeps the latest time, so that time never runs backwards when the entity moves to another machine.
"""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from durable_retry.base.names import CIRCUIT_BREAKER, KEY_CHANGED
from durable_retry.hub.entity_ids import circuit_id, dependency_of
from durable_retry.rules.circuit.breaker import FREE, Breaker
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.key_changes import KeyChange
from durable_retry.rules.circuit.messages import PermitMessage, ReportMessage
from durable_retry.rules.circuit.transitions import Gone, ManualAction
from durable_retry.rules.facts import CircuitChanged, DependencyPaused
from durable_retry.runtime import clock
from durable_retry.telemetry.facts import report

blueprint = df.Blueprint()


class CircuitBreaker(DurableEntity):
    """`permit` is called by an orchestration that wants to probe; the other operations are signals.

    A message that cannot be read raises, which rolls that one operation back and leaves the state as it was.
    """

    def report(self, message: dict[str, Any]) -> None:
        """Count a worker's calls. Input: `ReportMessage`."""
        before, report, now = self._stored_breaker(), ReportMessage.from_json(message), clock.now()
        breaker = report.apply(before, now)
        self._store_breaker(before, breaker)
        if breaker.state is before.state and report.alerts(before, breaker, now):
            self._tell_dependency(breaker)

    def permit(self, message: dict[str, Any]) -> dict[str, Any]:
        """Permit a probe, or refuse it until an instant. Input: `PermitMessage`; answer: `PermitAnswer`."""
        before = self._stored_breaker()
        breaker, answer = PermitMessage.from_json(message).apply(before, clock.now())
        self._store_breaker(before, breaker)
        return answer.to_json()

    def hand(self, message: dict[str, Any]) -> None:
        """Open, close, disable or reset by hand. Input: `ManualAction`."""
        before = self._stored_breaker()
        breaker = ManualAction.from_json(message).apply(before, clock.now())
        self._store_breaker(before, breaker)
        if breaker.state is before.state:  # a pause may have ended
            self._tell_dependency(breaker)

    def freeze(self, message: dict[str, Any]) -> None:
        """Hold calls in a freeze of all dependencies, or let some through. Input: `Freeze`."""
        before = self._stored_breaker()
        self._store_breaker(before, before.with_freeze(Freeze.from_json(message), clock.now()))

    def gone(self, message: dict[str, Any]) -> None:
        """Stop counting an operation that will make no attempt. Input: `Gone`."""
        before = self._stored_breaker()
        self._store_breaker(before, Gone.from_json(message).apply(before, clock.now()))

    def key_changed(self, message: dict[str, Any]) -> None:
        """Note which circuits of limit keys have changed, and which are not free. Input: `KeyChange`."""
        self.set_state(self._stored_breaker().with_key(KeyChange.from_json(message)).to_json())

    def forget(self, _message: dict[str, Any]) -> None:
        """Remove the circuit of a limit key, if no operation uses it."""
        breaker = self._stored_breaker()
        if breaker.limit_key is not None and breaker.is_idle(clock.now()):
            self.set_state(None)
            self._tell_dependency(Breaker(limit_key=breaker.limit_key))

    def _tell_dependency(self, breaker: Breaker) -> None:
        if breaker.limit_key is not None:
            change = KeyChange(breaker.limit_key, breaker.is_free(clock.now()))
            self.signal_entity(circuit_id(self._dependency), KEY_CHANGED, change.to_json())

    @property
    def _dependency(self) -> str:
        return dependency_of(self.entity_context.entity_id.key)

    def _stored_breaker(self) -> Breaker:
        return Breaker.from_json(self.get_state(dict) or {})

    def _store_breaker(self, before: Breaker, breaker: Breaker) -> None:
        self.set_state(breaker.to_json())
        since, until = breaker.throttled_since, breaker.throttled_until
        if since is not None and until is not None and until != before.throttled_until:
            report(DependencyPaused(self._dependency, since, until, breaker.throttled_by, breaker.limit_key))
        if breaker.state is before.state:
            return
        outage = before if breaker.state in FREE else breaker
        change = CircuitChanged(
            self._dependency,
            before.state,
            breaker.state,
            breaker.reason,
            breaker.changed_by,
            opened_at=outage.closed_to_calls_since,
            opened_because=outage.opened_because,
            failed_probes=outage.reopenings,
            last_error=outage.last_error,
            limit_key=breaker.limit_key,
        )
        report(change)
        self._tell_dependency(breaker)


blueprint.function_name(CIRCUIT_BREAKER)(
    blueprint.entity_trigger(context_name="context", entity_name=CIRCUIT_BREAKER)(CircuitBreaker)
)
