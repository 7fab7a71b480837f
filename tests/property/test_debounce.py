"""Debouncing: whatever the order in which messages arrive, the last submission runs, and no replaced one."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.features.debounce.rules import LONGEST_WAIT, DebounceRequest, Series, arrive, begin
from tests.support.builders import after

SECONDS = 5.0


@dataclass
class Entity:
    """The entity, and what its operations were answered."""

    series: Series | None = None
    begun: list[DebounceRequest] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)

    def arrive(self, request: DebounceRequest) -> None:
        self.series, place = arrive(self.series, request)
        if place.replaced_by is not None:
            self.replaced[request.operation_id] = place.replaced_by
        elif place.begins and request not in self.begun:
            self.begun.append(request)

    def begin(self, request: DebounceRequest) -> None:
        if request.operation_id in self.replaced or request in self.begun:
            return
        self.series, place = begin(self.series, request)
        if place.replaced_by is not None:
            self.replaced[request.operation_id] = place.replaced_by
        else:
            self.begun.append(request)


@given(st.data())
def test_the_last_one_runs_and_what_runs_was_not_replaced(data: st.DataObject) -> None:
    moments = data.draw(st.lists(st.integers(0, 120), min_size=1, max_size=8))
    asked = [
        DebounceRequest(operation_id=f"op-{number}", accepted_at=after(at / 2), seconds=SECONDS)
        for number, at in enumerate(moments)
    ]
    entity, left = Entity(), list(asked)
    waiting: list[DebounceRequest] = []
    while left or waiting:
        joins = data.draw(st.booleans()) if left and waiting else bool(left)
        if joins:
            request = left.pop(data.draw(st.integers(0, len(left) - 1)))
            entity.arrive(request)
            if data.draw(st.booleans()):
                entity.arrive(request)  # A call that is delivered twice.
            waiting.append(request)
        else:
            entity.begin(waiting.pop(data.draw(st.integers(0, len(waiting) - 1))))
    by_id = {request.operation_id: request for request in asked}
    order = {request.operation_id: (request.accepted_at, request.operation_id) for request in asked}
    last = max(asked, key=lambda request: order[request.operation_id])
    assert last in entity.begun
    assert len(entity.begun) == len({request.operation_id for request in entity.begun})
    assert {request.operation_id for request in entity.begun}.isdisjoint(entity.replaced)
    assert {*entity.replaced, *(request.operation_id for request in entity.begun)} == set(by_id)
    assert all(order[later] > order[name] for name, later in entity.replaced.items())


@given(st.lists(st.floats(0.01, SECONDS - 0.01), min_size=1, max_size=60))
def test_no_stream_puts_a_run_off_for_longer_than_the_bound(gaps: list[float]) -> None:
    at, series, began_at = 0.0, None, None
    for number, gap in enumerate(gaps):
        request = DebounceRequest(operation_id=f"op-{number}", accepted_at=after(at), seconds=SECONDS)
        series, place = arrive(series, request)
        began_at = at if began_at is None else began_at
        assert place.due_at <= after(max(at, began_at + LONGEST_WAIT * SECONDS))
        began_at = None if place.begins else began_at
        at += gap
