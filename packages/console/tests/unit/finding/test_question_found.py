"""Why an operation waits now, in what a search finds."""

from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.names import OperationState
from durable_retry.rules.operations.status import OperationStatus
from durable_retry.rules.operations.waits import waits_of
from durable_retry.rules.retry.history import History, PastAction, PastWait, WaitKind
from durable_retry_console.finding.question import why_waiting
from tests.support.builders import NOON, an_operation


def document(state: OperationState, **history: Any) -> dict[str, Any]:
    """Return a status document as it is shown."""
    past = History(**history)
    status = OperationStatus(operation=an_operation(), state=state, history=past, updated_at=NOON)
    stored = status.to_json()
    return stored | {"waits": [wait.to_json() for wait in waits_of(stored)]}


HELD = PastWait(
    before_attempt=1,
    kind=WaitKind.CIRCUIT,
    began_at=NOON + timedelta(seconds=3),
    until=NOON + timedelta(seconds=33),
    delay_reasons=("payments answers 503: no upstream, since 2026-11-21T12:00:00Z", "staggered by 1 s"),
)


def test_an_operation_waits_for_its_circuit_because_of_the_error_behind_it() -> None:
    shown = document(OperationState.WAITING_CIRCUIT, waits=(HELD,))
    assert why_waiting(shown) == HELD.delay_reasons[0]


@pytest.mark.parametrize(
    "state", [OperationState.RUNNING, OperationState.SUCCEEDED, OperationState.SCHEDULED]
)
def test_what_does_not_wait_has_no_reason(state: OperationState) -> None:
    waits = () if state is OperationState.SCHEDULED else (HELD,)
    assert why_waiting(document(state, waits=waits)) is None


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        ((), None),
        ((PastAction(action="pause", at=NOON),), "paused"),
        ((PastAction(action="pause", at=NOON, by="ada", reason="deploy"),), "paused by ada: deploy"),
    ],
)
def test_an_operation_is_paused_by_somebody_and_for_a_reason(
    actions: tuple[PastAction, ...], why: str | None
) -> None:
    assert why_waiting(document(OperationState.PAUSED, actions=actions)) == why
