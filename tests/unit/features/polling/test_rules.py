from dataclasses import replace
from typing import Any

import pytest

from durable_retry.base.names import Category
from durable_retry.base.validation import InvalidInputError, validated
from durable_retry.features.polling.rules import (
    MEMBERS,
    Accepted,
    Poll,
    Polled,
    PollKeys,
    accepted_in,
    carried,
    ended,
    is_accepted,
    is_over,
    next_poll,
    poll_of,
)
from durable_retry.features.replay.rules import members_of_replay, parts_of_replay
from durable_retry.rules.circuit.snapshot import refused
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, ScopedKey
from durable_retry.rules.operations.operation import OperationInput, operation_from
from durable_retry.rules.operations.request import Members, parse_operation
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.retry_after import RetryHint
from tests.support.builders import NOON, PAYMENTS, after, an_operation, an_outcome
from tests.support.narrowing import of_type

AZURE = Poll.model_validate(
    {"until": {"pointer": "/status", "succeeded": ["Succeeded"], "failed": ["Failed", "Canceled"]}}
)
DONE = Poll.model_validate({"until": {"pointer": "/done", "succeeded": [True]}})
POLLED = replace(PAYMENTS, of_features={"polling": PollKeys(poll=Poll(every_seconds=30.0))})


def a_result(status_code: int = 202, json: Any = None, **headers: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"status_code": status_code, "headers": named} | ({} if json is None else {"json": json})


def a_202(json: Any = None, **headers: str) -> AttemptOutcome:
    return an_outcome(None, status_code=202, result=a_result(202, json, **headers))


def answered(status_code: int, json: Any = None, **changes: Any) -> AttemptOutcome:
    changes = {"category": None, "result": a_result(status_code, json)} | changes
    return an_outcome(status_code=status_code, **changes)


def submitted(dependency: Dependency = POLLED, **members: Any) -> OperationInput:
    body = {"dependency": "payments", "request": {"path": "/charges", "json": {}}} | members
    name = ScopedKey(EXPLICIT_SCOPE, "key-1")
    return operation_from(parse_operation(body), dependency, name, source="http", now=NOON)


def test_an_operation_is_polled_as_its_dependency_says_and_as_it_says_itself() -> None:
    assert poll_of(submitted()) == Poll(every_seconds=30.0)
    assert poll_of(submitted(poll={"location": "/url"})) == Poll(location="/url", every_seconds=30.0)
    assert poll_of(submitted(PAYMENTS, poll={})) == Poll()


def test_one_that_nobody_asks_to_poll_keeps_nothing_of_it() -> None:
    assert submitted(PAYMENTS).parts is None


def test_a_handler_is_not_polled() -> None:
    request = parse_operation({"handler": "charge"})
    name = ScopedKey(EXPLICIT_SCOPE, "key-1")
    assert operation_from(request, POLLED, name, source="http", now=NOON).parts is None
    with pytest.raises(InvalidInputError, match="/poll: belongs to a request"):
        parse_operation({"handler": "charge", "poll": {}})


def test_a_replay_is_polled_as_the_operation_was() -> None:
    parts = submitted().parts or {}
    assert parts_of_replay(parts) == parts
    assert members_of_replay(parts) == {"poll": {"location": "header", "every_seconds": 30.0}}


@pytest.mark.parametrize(
    "table",
    [
        {"location": "body"},
        {"location": "/a~2"},
        {"every_seconds": 0.5},
        {"until": {"pointer": "/status", "succeeded": []}},
        {"until": {"pointer": "status", "succeeded": ["a"]}},
        {"untill": {}},
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        validated(Poll, table)


@pytest.mark.parametrize(
    ("poll", "outcome", "place"),
    [
        (Poll(), a_202(location="/jobs/7"), "/jobs/7"),
        (Poll(), a_202(location="/b", operation_location="/a"), "/a"),
        (Poll(), a_202(location="/b", azure_asyncoperation="/a"), "/a"),
        (Poll(location="/links/status"), a_202({"links": {"status": "jobs/7"}}), "jobs/7"),
    ],
)
def test_an_accepted_request_is_asked_for_where_its_answer_says(
    poll: Poll, outcome: AttemptOutcome, place: str
) -> None:
    accepted = accepted_in(outcome, poll, an_operation(), NOON)
    assert accepted == Accepted(
        place=place,
        due_at=after(5),
        reasons=("accepted by payments, asked again at 2026-11-21T12:00:05Z",),
    )


@pytest.mark.parametrize(
    ("poll", "outcome", "where"),
    [
        (Poll(), a_202({"url": "/jobs/7"}), "header"),
        (Poll(location="/url"), a_202({"url": 7}, location="/jobs/7"), "value at /url"),
        (Poll(location="/url"), a_202(), "value at /url"),
    ],
)
def test_an_accepted_request_that_nobody_can_ask_for_has_an_unknown_end(
    poll: Poll, outcome: AttemptOutcome, where: str
) -> None:
    end = of_type(AttemptOutcome, accepted_in(outcome, poll, an_operation(), after(2)))
    assert (end.category, end.status_code, end.duration_ms) == (Category.AMBIGUOUS, 202, 2_000.0)
    assert end.error == (
        f"it was accepted at 2026-11-21T12:00:00Z, and its answer has no {where} that names where to ask"
    )


def test_other_outcomes_are_none_of_an_accepted_request() -> None:
    assert is_accepted(a_202())
    assert not is_accepted(answered(200))
    assert not is_accepted(an_outcome(Category.MALFORMED, status_code=202))


def test_what_is_carried_on_says_how_it_stands() -> None:
    accepted = Accepted(place="/jobs/7", due_at=after(90), reasons=("so",), polls=3)
    outcome = carried(a_202(location="/jobs/1"), accepted)
    assert is_accepted(outcome)
    assert accepted_in(outcome, Poll(), an_operation(), after(60)) == accepted


@pytest.mark.parametrize(
    ("poll", "outcome", "over"),
    [
        (Poll(), answered(202), False),
        (Poll(), answered(200), True),
        (Poll(), answered(204), True),
        (Poll(), answered(303), False),
        (AZURE, answered(200, {"status": "Running"}), False),
        (AZURE, answered(200, {"status": "Succeeded"}), True),
        (AZURE, answered(202, {"status": "Succeeded"}), False),
        (AZURE, answered(200, {"id": 7}), True),
        (AZURE, answered(200), True),
        (DONE, answered(200, {"done": True}), True),
        (DONE, answered(200, {"done": 1}), False),
        (Poll(), answered(503, category=Category.TRANSIENT), False),
        (Poll(), answered(429, category=Category.THROTTLED), False),
        (Poll(), answered(503, category=Category.TRANSIENT, is_ruled=True), True),
        (Poll(), answered(404, category=Category.NOT_FOUND), True),
        (Poll(), answered(401, category=Category.UNAUTHORIZED, counted=False), False),
    ],
)
def test_what_ends_the_polling(poll: Poll, outcome: AttemptOutcome, over: object) -> None:
    assert is_over(poll, outcome) is over


@pytest.mark.parametrize(
    ("poll", "result", "failed"),
    [
        (AZURE, a_result(200, {"status": "Failed"}), True),
        (AZURE, a_result(202, {"status": "Canceled"}), True),
        (AZURE, a_result(200, {"status": "Succeeded"}), False),
        (AZURE, a_result(200), False),
        (Poll(), a_result(200, {"status": "Failed"}), False),
    ],
)
def test_an_answer_says_that_the_work_failed(poll: Poll, result: dict[str, Any], failed: object) -> None:
    assert poll.has_failed(result) is failed


def polled(outcome: AttemptOutcome | None = None, **changes: Any) -> Polled:
    return Polled(place="/jobs/7", outcome=outcome, **changes)


def following(answer: Polled, now: float = 60, **operation: Any) -> Accepted | AttemptOutcome:
    return next_poll(a_202(), answer, Poll(), an_operation(**operation), after(now), polls=2)


@pytest.mark.parametrize(
    ("outcome", "seconds", "reasons"),
    [
        (answered(202), 5, ()),
        (answered(202, result=a_result(retry_after="2")), 5, ("Retry-After 2 s",)),
        (answered(202, result=a_result(retry_after="40")), 40, ("Retry-After 40 s",)),
        (
            answered(503, category=Category.TRANSIENT, error="no", retry_hint=RetryHint(9.0)),
            9,
            ("payments answers 503: no", "Retry-After 9 s"),
        ),
    ],
)
def test_the_next_poll_is_as_late_as_the_answer_asks(
    outcome: AttemptOutcome, seconds: float, reasons: tuple[str, ...]
) -> None:
    again = of_type(Accepted, following(polled(outcome)))
    assert (again.due_at, again.reasons[1:], again.polls) == (after(60 + seconds), reasons, 2)


@pytest.mark.parametrize(("opens_in", "seconds"), [(20.0, (20, 21)), (600.0, (60, 60))])
def test_a_poll_waits_for_the_circuit_and_asks_its_worker_every_minute(
    opens_in: float, seconds: tuple[float, float]
) -> None:
    answer = polled(refused=refused("op-test", after(60 + opens_in), 0, "the circuit is open"))
    again = of_type(Accepted, following(answer))
    least, most = (after(60 + each) for each in seconds)
    assert least <= again.due_at <= most
    assert "the circuit is open" in again.reasons


def test_the_last_poll_is_right_before_the_deadline() -> None:
    last = of_type(Accepted, following(polled(answered(202)), 60, deadline_in=64))
    assert last.due_at == after(62)  # 2 s are left to connect
    end = of_type(AttemptOutcome, following(polled(answered(202)), 62, deadline_in=64))
    assert (end.category, end.duration_ms, end.result) == (Category.DEADLINE_EXCEEDED, 62_000.0, None)
    assert end.error == (
        "it was accepted at 2026-11-21T12:00:00Z, and had not ended after 2 polls, the last one answered 202"
    )


def test_the_end_is_the_outcome_of_the_attempt_that_lasted_so_long() -> None:
    last = answered(200, {"id": 7}, started_at=after(60), duration_ms=500.0, number=1)
    outcome = replace(a_202(), number=3, started_at=after(10))
    whole = ended(outcome, last)
    assert (whole.number, whole.started_at, whole.duration_ms) == (3, after(10), 50_500.0)
    assert (whole.status_code, whole.result, whole.error) == (200, last.result, None)


@pytest.mark.parametrize(("error", "shown"), [("no such job", "; no such job"), (None, "")])
def test_a_failure_says_that_the_request_was_accepted(error: str | None, shown: str) -> None:
    last = answered(404, category=Category.NOT_FOUND, error=error, started_at=after(60))
    assert ended(a_202(), last).error == f"it was accepted at 2026-11-21T12:00:00Z{shown}"


def test_what_is_read_of_an_answer_is_its_place_and_how_it_stands() -> None:
    until = {"pointer": "/state", "succeeded": ["ready"]}
    part = {"location": "/links/status", "until": until}
    assert list(MEMBERS.read_at(part)) == ["/json/links/status", "/json/state"]
    assert list(MEMBERS.read_at({"location": "header"})) == []
    assert list(Members().read_at({})) == []
