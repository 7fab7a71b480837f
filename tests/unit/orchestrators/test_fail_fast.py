from dataclasses import replace
from typing import Any

import pytest

from durable_retry.rules.circuit.snapshot import Refused
from tests.support.builders import Activities, after, an_operation, failing
from tests.support.stage import Stage


def refused_at(attempt: int, *, throttled: bool | None = None, frozen: bool | None = None) -> Activities:
    """Return activities of which the circuit refuses an attempt once; those before it fail."""
    left = [attempt]

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "attempt" and given["attempt"] in left:
            left.clear()
            refusal = Refused(after(60), 0, after(60), "the circuit is open: it failed")
            return {"stopped": replace(refusal, throttled=throttled, frozen=frozen).to_json()}
        return failing(attempt - 1)(name, given)

    return answer


def refusing(source: str = "call") -> Any:
    return an_operation(source=source, parts={"fail_fast": {}})


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_call_ends_where_the_circuit_opens(attempt: int) -> None:
    document = Stage(refusing(), refused_at(attempt)).run()
    letter = document["dead_letter"]
    assert (document["status"], document["attempt_count"]) == ("dead_lettered", attempt - 1)
    assert (letter["reason"], letter["category"]) == ("CircuitOpen", "circuit_open")
    assert letter["detail"].startswith("the circuit is open: it failed; ")


def test_what_else_was_accepted_waits() -> None:
    assert Stage(refusing("http"), refused_at(1)).run()["status"] == "succeeded"
    assert Stage(an_operation(source="call"), refused_at(1)).run()["status"] == "succeeded"


def test_a_pause_a_freeze_and_a_retry_are_waited_for() -> None:
    assert Stage(refusing(), refused_at(2, throttled=True)).run()["status"] == "succeeded"
    assert Stage(refusing(), refused_at(1, frozen=True)).run()["status"] == "succeeded"
