"""In which order the dependencies are shown, and which are healthy."""

from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.names import FINISHED, OperationState
from durable_retry.features.dead_letter_lists.rules.numbers import DeadLetterSummary, OpenDeadLetters
from durable_retry.rules.circuit.freeze import FreezeFigures
from durable_retry.rules.circuit.messages import KeyFigures
from durable_retry.rules.circuit.states import CircuitState
from durable_retry_console.overview.dependencies import CircuitGlance, DependencyGlance, by_trouble
from durable_retry_console.overview.summary import OperationSummary
from tests.support.builders import NOON

NO_STATES = dict.fromkeys(OperationState, 0)
NO_COUNTS = {state: 0 for state in OperationState if state not in FINISHED}


def circuit(name: str = "payments", **more: Any) -> CircuitGlance:
    given: dict[str, Any] = {
        "dependency": name,
        "state": CircuitState.CLOSED,
        "calls": 10,
        "failures": 0,
        "failure_ratio": 0.0,
        "slow_calls": 0,
        "opened_at": None,
        "first_opened_at": None,
        "failed_probes": 0,
        "last_error": None,
        "retry_at": None,
        "throttled_until": None,
        "throttled_by": None,
        "reason": "new",
        "changed_by": "circuit",
        "opens_at_ratio": 0.5,
    }
    return CircuitGlance(**(given | more))


def operations(**waiting: dict[str, int]) -> OperationSummary:
    """Nothing but operations that wait, by dependency and state."""
    share = {"operations": 1, "attempts": 3, "amplification": 3.0, "by_status": NO_STATES}
    return OperationSummary.model_validate(
        {
            **share,
            "counted_at": NOON,
            "complete": True,
            "from": NOON,
            "to": NOON,
            "by_dependency": dict.fromkeys(waiting, share),
            "bucket_seconds": 60.0,
            "buckets": (),
            "unfinished": {
                "complete": True,
                "by_status": NO_COUNTS,
                "by_dependency": {
                    name: NO_COUNTS | {OperationState(state): count for state, count in counts.items()}
                    for name, counts in waiting.items()
                },
                "waiting": (),
            },
        }
    )


def letters(**counts: int) -> DeadLetterSummary:
    """Open dead letters by dependency."""
    kinds = {
        name: OpenDeadLetters(open=count, oldest_at=NOON, oldest_age_seconds=1.0)
        for name, count in counts.items()
    }
    return DeadLetterSummary(
        open=sum(counts.values()), oldest_at=NOON, oldest_age_seconds=1.0, by_reason={}, by_dependency=kinds
    )


def glance(
    one: CircuitGlance, waiting: OperationSummary | None = None, dead: DeadLetterSummary | None = None
) -> DependencyGlance:
    (found,) = by_trouble([one], waiting or operations(), dead or letters())
    return found


def test_a_refused_credential_comes_before_a_probe_also_where_it_is_of_a_limit_key() -> None:
    refusing = KeyFigures(
        **dict(circuit(state=CircuitState.OPEN, credential_refused_by="401")) | {"limit_key": "initech"}
    )
    circuits = [
        circuit("probed", state=CircuitState.HALF_OPEN),
        circuit("own", state=CircuitState.HALF_OPEN, credential_refused_by="401"),
        circuit("of-key", limit_keys=(refusing,)),
    ]
    found = by_trouble(circuits, operations(), letters())
    assert [each.dependency for each in found] == ["of-key", "own", "probed"]


def test_what_holds_calls_back_comes_first_then_what_loses_the_most() -> None:
    circuits = [
        circuit("fine"),
        circuit("loses-few", failure_ratio=0.3),
        circuit("loses-many"),
        circuit("paused", throttled_until=NOON + timedelta(minutes=5)),
        circuit("probed", state=CircuitState.HALF_OPEN),
        circuit("held", state=CircuitState.FORCED_OPEN),
        circuit("down", state=CircuitState.OPEN),
    ]
    waiting = operations(down={"waiting_circuit": 300, "waiting_retry": 1}, held={"waiting_circuit": 2})
    found = by_trouble(circuits, waiting, letters(**{"loses-many": 17, "down": 4}))
    assert [each.dependency for each in found] == [
        "down",
        "held",
        "probed",
        "paused",
        "loses-many",
        "loses-few",
        "fine",
    ]
    assert [each.healthy for each in found] == [False] * 6 + [True]
    assert (found[0].waiting, found[0].open_dead_letters, found[0].amplification) == (301, 4, 3.0)
    assert (found[-1].waiting, found[-1].open_dead_letters, found[-1].amplification) == (0, 0, None)


def test_no_dependency_is_healthy_while_all_are_held() -> None:
    hold = FreezeFigures(by="ada", since=NOON, reason="wrong amounts", until=None)
    found = by_trouble([circuit("fine", hold=hold)], operations(), letters())
    assert [(each.healthy, each.hold) for each in found] == [(False, hold)]


@pytest.mark.parametrize(
    ("more", "healthy"),
    [
        ({"failure_ratio": None}, True),
        ({"failure_ratio": 0.24}, True),
        ({"failure_ratio": 0.25}, False),
        ({"unreadable": "no JSON"}, False),
        ({"state": CircuitState.DISABLED, "changed_by": "ada"}, False),
        ({"state": CircuitState.DISABLED, "changed_by": "settings"}, True),
    ],
)
def test_a_dependency_is_healthy_while_calls_go_through_and_few_fail(
    more: dict[str, Any], *, healthy: bool
) -> None:
    assert glance(circuit(**more)).healthy is healthy


def test_one_for_which_something_waits_or_died_is_not_healthy() -> None:
    assert not glance(circuit(), operations(payments={"waiting_retry": 1})).healthy
    assert not glance(circuit(), dead=letters(payments=1)).healthy
    assert glance(circuit(), operations(payments={"scheduled": 1, "running": 1})).healthy


def test_what_could_not_be_read_is_not_known() -> None:
    (found,) = by_trouble([circuit()], None, None)
    assert (found.waiting, found.open_dead_letters, found.amplification) == (None, None, None)
