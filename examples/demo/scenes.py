"""The scenario: what is done to the system, and what has to come of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from examples.demo.stage import Stage
from examples.demo.timeline import Timeline
from scripts.processes import eventually

ORDERS: Final = 6
_END_SECONDS: Final = 60.0
_REPLAYED: Final = "idempotent-replayed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one operation or message ended beside how it had to.

    Attributes:
        name: The key.
        expected: Its end, and the fewest requests that the dependency had to see, as `succeeded, 3 calls`.
        found: The same, as it came.
    """

    name: str
    expected: str
    found: str

    @property
    def holds(self) -> bool:
        """Whether it ended as it should."""
        return self.expected == self.found


type Scene = Callable[[Stage, Timeline], Sequence[Verdict]]


def failing(stage: Stage, timeline: Timeline) -> list[Verdict]:
    """A payment whose call fails twice before it succeeds."""
    timeline.scene("A dependency that fails twice")
    accepted = _post(stage, timeline, "payments", "charge-1", "/fail/2")
    timeline.see(f"operations/{accepted['operation_id']}")
    _watch(stage, timeline, [accepted])
    return [_verdict(stage, accepted, "succeeded", calls=3)]


def throttling(stage: Stage, timeline: Timeline) -> list[Verdict]:
    """A mail service that is over its quota and says when to come back."""
    timeline.scene("A dependency that throttles: it is called no earlier than it says")
    accepted = _post(stage, timeline, "mailer", "mail-1", "/throttle/1?retry_after=3")
    timeline.see(f"operations/{accepted['operation_id']}")
    _watch(stage, timeline, [accepted])
    return [_verdict(stage, accepted, "succeeded", calls=2)]


def duplicate(stage: Stage, timeline: Timeline) -> list[Verdict]:
    """The same payment, posted again: nothing is started."""
    timeline.scene("A duplicate: the same key and the same request")
    again = stage.post("payments", "charge-1", "/fail/2")
    replayed = again.headers.get(_REPLAYED, "false")
    timeline.show("charge-1", f"posted again: {again.status_code}, Idempotent-Replayed: {replayed}")
    found = f"{again.json()['status']}, replayed {replayed}, {stage.calls_of('charge-1')} calls"
    return [Verdict("charge-1 again", "succeeded, replayed true, 3 calls", found)]


def recovering(stage: Stage, timeline: Timeline) -> list[Verdict]:
    """A warehouse that goes down as a whole: its circuit opens, and what waits goes on when it is back."""
    timeline.scene("A dependency that dies and recovers: the circuit opens, is probed, and closes")
    timeline.see("circuits/warehouse")
    stage.warehouse.put("/outage/on").raise_for_status()
    timeline.show("warehouse", "goes down")
    orders = [
        _post(stage, timeline, "warehouse", f"order-{number}", "/echo") for number in range(1, ORDERS + 1)
    ]
    eventually(lambda: _circuit(stage) == "open", "the circuit opens", within_seconds=_END_SECONDS)
    timeline.show("warehouse", "its circuit is open: nobody calls it now, and nobody waits in a function")
    _watch(stage, timeline, orders, until=_held_up)
    stage.warehouse.put("/outage/off").raise_for_status()
    timeline.show("warehouse", "is back; the next probe will find out")
    _watch(stage, timeline, orders)
    eventually(lambda: _circuit(stage) == "closed", "the circuit closes", within_seconds=_END_SECONDS)
    timeline.show("warehouse", "its circuit is closed: a probe succeeded, and those who waited went in turn")
    return [_verdict(stage, order, "succeeded") for order in orders]


def refused(stage: Stage, timeline: Timeline) -> list[Verdict]:
    """A payment that is refused, mended by a person, and replayed under the same key."""
    timeline.scene("A refusal: never retried, a dead letter; a person mends the request and replays it")
    accepted = _post(stage, timeline, "payments", "charge-2", "/status/422")
    _watch(stage, timeline, [accepted])
    first = _verdict(stage, accepted, "dead_lettered", calls=1)
    dead_letter_id = stage.status(accepted["operation_id"])["dead_letter"]["id"]
    timeline.see(f"dead-letters/{dead_letter_id}")
    mended = {"method": "POST", "path": "/echo", "json": {"order": "charge-2"}}
    stage.api.post(
        f"/api/dead-letters/{dead_letter_id}/replay",
        json={"request": mended, "note": "the path was wrong", "downstream_key": "same"},
    ).raise_for_status()
    timeline.show("charge-2", "replayed with another path, under the same key")
    eventually(
        lambda: stage.status(accepted["operation_id"])["status"] == "succeeded",
        "the replay succeeds",
        within_seconds=_END_SECONDS,
    )
    _watch(stage, timeline, [accepted])
    return [first, _verdict(stage, accepted, "succeeded", calls=2)]


def malformed(stage: Stage, timeline: Timeline) -> list[Verdict]:
    """A queue message that is no operation."""
    timeline.scene("A malformed message on the queue: kept as it came, never retried")
    stage.queue.send_message('{"dependency": "payments", ')
    timeline.show("queue", 'a message: {"dependency": "payments", ')
    letter: dict[str, Any] = eventually(
        lambda: next(iter(stage.dead_letters(reason="MalformedJson")), None),
        "it is a dead letter",
        within_seconds=_END_SECONDS,
    )
    timeline.show("queue", f"dead letter: {letter['reason']}; {letter['detail']}")
    timeline.see(f"dead-letters/{letter['id']}")
    return [Verdict("the message", "MalformedJson, open", f"{letter['reason']}, {letter['status']}")]


SCENES: Final[Sequence[Scene]] = (failing, duplicate, throttling, recovering, refused, malformed)


def _post(stage: Stage, timeline: Timeline, dependency: str, key: str, path: str) -> dict[str, Any]:
    answer = stage.post(dependency, key, path)
    timeline.show(key, f"posted for {dependency}: {answer.status_code}")
    accepted: dict[str, Any] = answer.json()
    return accepted


def _watch(
    stage: Stage,
    timeline: Timeline,
    accepted: Sequence[dict[str, Any]],
    *,
    until: Callable[[Sequence[dict[str, Any]]], bool] | None = None,
) -> None:
    """Show what happens to these until something holds for their documents; None = until all are finished."""

    def look() -> bool:
        documents = [stage.status(one["operation_id"]) for one in accepted]
        # Each is shown every time, also behind one that is not finished.
        finished = [timeline.look(document) for document in documents]
        return all(finished) if until is None else until(documents)

    names = ", ".join(one["key"] for one in accepted)
    eventually(look, f"{names} end", within_seconds=_END_SECONDS)


def _held_up(documents: Sequence[dict[str, Any]]) -> bool:
    """Return whether the circuit holds all of these up."""
    return all(document["status"] == "waiting_circuit" for document in documents)


def _verdict(stage: Stage, accepted: dict[str, Any], expected: str, *, calls: int | None = None) -> Verdict:
    document = stage.status(accepted["operation_id"])
    found = str(document["status"])
    if calls is None:
        return Verdict(accepted["key"], expected, found)
    made = stage.calls_of(accepted["key"])
    return Verdict(accepted["key"], f"{expected}, {calls} calls", f"{found}, {made} calls")


def _circuit(stage: Stage) -> str:
    return str(stage.api.get("/api/circuits/warehouse").raise_for_status().json()["state"])
