"""The methods of both clients about circuits, order lanes, the outbox, alerts and the activity."""

from typing import Unpack

from durable_retry.client.filters import (
    ActivityFilters,
    OrderLaneFilters,
    OutboxFilters,
    SilenceOptions,
)
from durable_retry.client.flows import Flow, Flows, Pages
from durable_retry.client.methods import ListMethod, Method
from durable_retry.console.activity.shapes import ActivityItem
from durable_retry.console.alerts.document import AlertBoard, AlertTests
from durable_retry.console.alerts.rules import Silence
from durable_retry.engine.base.answers import Page
from durable_retry.engine.circuit.view import CircuitChange
from durable_retry.engine.limits.view import LimitedCircuit, ListedCircuit
from durable_retry.engine.order_lanes.document import ListedOrderLane, OrderLane
from durable_retry.engine.outbox import OutboxEvent, OutboxEventDocument


class Steering(Flows):
    """The calls of the API about the app as a whole; errors as in `Resources`."""

    @Method
    def circuits(self) -> Flow[tuple[ListedCircuit, ...]]:
        """Return the circuit of every dependency."""
        page = yield from self._read(Page[ListedCircuit], "circuits")
        return page.items

    @Method
    def circuit(self, dependency: str) -> Flow[LimitedCircuit]:
        """Return the circuit of a dependency, and its limits."""
        return self._read(LimitedCircuit, "circuits", dependency)

    @Method
    def open_circuit(
        self, dependency: str, *, reason: str, for_seconds: float | None = None, stops_deadline: bool = False
    ) -> Flow[CircuitChange]:
        """Hold a circuit open, until it is changed again unless `for_seconds` is given.

        With `stops_deadline` the deadlines of operations that wait for it stop meanwhile.
        """
        more = {"stops_deadline": True} if stops_deadline else {}
        return self._control_circuit(dependency, "open", reason, for_seconds, **more)

    @Method
    def close_circuit(self, dependency: str, *, reason: str) -> Flow[CircuitChange]:
        """Close a circuit; what waits for it goes in its turn."""
        return self._control_circuit(dependency, "close", reason)

    @Method
    def disable_circuit(
        self, dependency: str, *, reason: str, for_seconds: float | None = None
    ) -> Flow[CircuitChange]:
        """Let everything through, whatever fails."""
        return self._control_circuit(dependency, "disable", reason, for_seconds)

    @Method
    def reset_circuit(self, dependency: str, *, reason: str) -> Flow[CircuitChange]:
        """Close a circuit and forget what it counted."""
        return self._control_circuit(dependency, "reset", reason)

    def _control_circuit(
        self, dependency: str, verb: str, reason: str, for_seconds: float | None = None, **more: bool
    ) -> Flow[CircuitChange]:
        body = {"reason": reason, **({} if for_seconds is None else {"for_seconds": for_seconds}), **more}
        return self._act(CircuitChange, "circuits", dependency, verb, body=body)

    @ListMethod
    def order_lanes(self, **filters: Unpack[OrderLaneFilters]) -> Pages[ListedOrderLane]:
        """Read the lanes of order keys in which somebody waits, or which a dead letter blocks."""
        return self._pages(Page[ListedOrderLane], ("order-lanes",), filters)

    @Method
    def order_lane(self, order_key: str) -> Flow[OrderLane]:
        """Return who is in front of the lane of an order key, and who waits."""
        # Not by the path: on Azure no part of a path takes a key with a slash.
        page = yield from self._read(Page[OrderLane], "order-lanes", order_key=order_key)
        return page.items[0]

    @ListMethod
    def outbox(self, **filters: Unpack[OutboxFilters]) -> Pages[OutboxEvent]:
        """Read events of the outbox, by default the pending ones."""
        return self._pages(Page[OutboxEvent], ("outbox",), filters)

    @Method
    def event(self, event_id: str) -> Flow[OutboxEventDocument]:
        """Return an event with its data and its attempts."""
        return self._read(OutboxEventDocument, "outbox", event_id)

    @Method
    def resend(self, event_id: str) -> Flow[OutboxEvent]:
        """Send an event once more, under the same id. It is not asked for again when its answer is lost."""
        return self._act(OutboxEvent, "outbox", event_id, "resend", repeats=False)

    @Method
    def alerts(self) -> Flow[AlertBoard]:
        """Return the alerts that are raised, the latest incidents, the silences and the receivers."""
        return self._read(AlertBoard, "alerts")

    @Method
    def silence(self, condition: str, *, reason: str, **end: Unpack[SilenceOptions]) -> Flow[Silence]:
        """Keep back messages about a condition, `*` for every one."""
        body = {"condition": condition, "reason": reason, **end}
        return self._act(Silence, "alerts", "silences", body=body, repeats=False)

    @Method
    def end_silence(self, silence_id: str) -> Flow[Silence]:
        """End a silence."""
        return self._delete(Silence, "alerts", "silences", silence_id)

    @Method
    def try_alerts(self) -> Flow[AlertTests]:
        """Send a message to every receiver that says that it is a test; return what became of each."""
        return self._act(AlertTests, "alerts", "test", repeats=False)

    @ListMethod
    def activity(self, **filters: Unpack[ActivityFilters]) -> Pages[ActivityItem]:
        """Read what people did and what happened, the newest first."""
        return self._pages(Page[ActivityItem], ("activity",), filters)
