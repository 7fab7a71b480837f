import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from durable_retry.base.json_forms import (
    from_rfc3339,
    optional_from_rfc3339,
    optional_to_rfc3339,
    to_rfc3339,
)
from durable_retry.base.masking import Masking
from durable_retry.base.names import FINISHED, Priority
from durable_retry.base.text import cut_text, seconds_text
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.debounce.rules import debounce_entity_for, debounce_of
from durable_retry.rules.config.dependency import Dependency, IdempotencySettings
from durable_retry.rules.operations import request as request_module
from durable_retry.rules.operations.keys import (
    Life,
    ScopedKey,
    fingerprint,
    operation_id_for,
)
from durable_retry.rules.operations.operation import (
    CONTENT_BYTES,
    OperationInput,
    content_of,
    deadline_of,
    excess_problems,
    fingerprint_of,
    operation_from,
    start_input,
    without_credentials,
)
from durable_retry.rules.operations.request import parse_operation
from durable_retry.rules.retry.constraints import attempt_seconds, is_over, latest_start, seconds_left
from durable_retry.rules.retry.history import KEPT_ATTEMPTS, AttemptOutcome, History, PastAttempt
from durable_retry.rules.retry.policy import PRESETS, UNLIMITED, RetryPolicy, Timeouts
from durable_retry.rules.retry.retry_after import RetryHint
from durable_retry.rules.retry.slots import NeedsSlot
from tests.support.builders import NOON, PAYMENTS, a_history, a_record, after, an_operation, an_outcome
from tests.support.feature_parts import followed_by, in_order
from tests.support.narrowing import existing

WITH_CREDENTIALS: dict[str, Any] = {
    "method": "GET",
    "path": "/",
    "query": {},
    "headers": {"X-Api-Key": "c2VjcmV0", "Accept": "text/plain"},
}
MASKED = {**WITH_CREDENTIALS, "headers": {"X-Api-Key": "***", "Accept": "text/plain"}}


def test_an_operation_survives_json() -> None:
    operation = an_operation(**followed_by({"type": "x", "queue": "abc", "data": None}), correlation_id="c")
    assert OperationInput.from_json(json.loads(json.dumps(operation.to_json()))) == operation


def test_events_that_follow_it_hold_no_operation_up_and_are_not_in_its_attempts() -> None:
    operation = an_operation(**followed_by({"type": "x", "queue": "abc", "data": None}))
    assert operation.begins_at_once
    assert operation.without_commit() == an_operation()
    ordered = an_operation(parts={**operation.parts_to_commit(), **in_order("customer-7")})
    assert not ordered.begins_at_once
    assert ordered.without_commit().parts == in_order("customer-7")


def test_a_handlers_operation_survives_json() -> None:
    operation = an_operation(deadline_in=None, handler="h", request=None, input=[1], replay_of="dl-1")
    assert OperationInput.from_json(json.loads(json.dumps(operation.to_json()))) == operation


@pytest.mark.parametrize(
    "outcome",
    [an_outcome(), an_outcome(None, result={"value": 1}), an_outcome(retry_hint=RetryHint(1), counted=False)],
)
def test_an_outcome_survives_json(outcome: AttemptOutcome) -> None:
    assert AttemptOutcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome


@pytest.mark.parametrize(
    "record", [a_record(delay_reasons=("a", "b"), next_delay_seconds=1.5), a_record(category=None)]
)
def test_a_record_survives_json(record: PastAttempt) -> None:
    assert PastAttempt.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_a_history_survives_json() -> None:
    history = a_history(25).with_own_failure().with_circuit_wait()
    assert History.from_json(json.loads(json.dumps(history.to_json()))) == history


def test_a_history_keeps_the_last_attempts_and_the_count_of_all() -> None:
    history = a_history(1_000)
    assert len(history.attempts) == KEPT_ATTEMPTS
    assert [history.attempts[0].number, history.attempts[-1].number] == [981, 1_000]
    assert history.attempt_count == 1_000
    assert history.next_attempt == 1_001


def test_a_fresh_history_begins_with_attempt_one() -> None:
    assert History().next_attempt == 1


def test_a_counted_attempt_ends_a_row_of_own_failures() -> None:
    history = History().with_own_failure().with_own_failure()
    assert history.own_failures == 2
    assert history.with_attempt(a_record()).own_failures == 0


def test_instants_are_utc_with_z() -> None:
    east = datetime(2026, 11, 21, 14, tzinfo=timezone(timedelta(hours=2)))
    assert to_rfc3339(east) == "2026-11-21T12:00:00Z"
    assert from_rfc3339("2026-11-21T14:00:00+02:00") == NOON
    assert optional_to_rfc3339(None) is None
    assert optional_from_rfc3339(None) is None


def test_an_instant_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a time zone"):
        to_rfc3339(datetime(2026, 11, 21))  # noqa: DTZ001  a naive instant is the point
    with pytest.raises(ValueError, match="with an offset"):
        from_rfc3339("2026-11-21T12:00:00")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.0, "2 s"), (1.37, "1.37 s"), (0.0004, "0 s"), (86_400, "86400 s"), (1e-3, "0.001 s")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_a_cut_text_shows_the_cut() -> None:
    assert cut_text("x" * 20, 20) == "x" * 20
    assert cut_text("x" * 21, 20) == "x" * 11 + "... (cut)"


def test_a_restarted_operation_has_its_whole_time_again() -> None:
    first = an_operation(timeouts=Timeouts(deadline_seconds=60), deadline_at=after(60))
    again = first.restarted(after(300))
    assert (again.created_at, again.deadline_at) == (after(300), after(360))
    assert again.run == first.run + 300_000
    same: dict[str, Any] = {
        "run": first.run,
        "created_at": first.created_at,
        "deadline_at": first.deadline_at,
    }
    assert replace(again, **same) == first


def test_the_time_left_is_cut_by_the_deadline() -> None:
    timeouts = Timeouts(connect_seconds=2, attempt_seconds=10)
    assert deadline_of(NOON, 0) is None
    assert deadline_of(NOON, 60) == after(60)
    assert latest_start(after(60), timeouts) == after(58)
    assert attempt_seconds(timeouts, None, NOON) == 10
    assert attempt_seconds(timeouts, after(60), NOON) == 10
    assert attempt_seconds(timeouts, after(60), after(57)) == 3
    assert attempt_seconds(timeouts, after(60), after(61)) == 0
    assert seconds_left(None, NOON) is None
    assert seconds_left(after(60), after(61)) == 0


def test_a_deadline_is_over_at_its_very_instant() -> None:
    assert is_over(NOON, NOON)
    assert not is_over(after(1), NOON)
    assert not is_over(None, NOON)


def test_an_operation_ends_in_one_of_three_states() -> None:
    assert {state.value for state in FINISHED} == {"succeeded", "dead_lettered", "cancelled"}


@pytest.mark.parametrize(("given", "sent"), [(None, "the operation's own"), ("chosen", "chosen")])
def test_the_key_sent_downstream_is_the_operations_own_unless_one_is_chosen(
    given: str | None, sent: str
) -> None:
    assert an_operation(key="the operation's own", downstream_key=given).sent_key == sent


def test_a_run_is_named_by_its_operation_and_a_life_by_its_owner_and_the_time_of_its_key() -> None:
    operation = an_operation(replay_of="dl-1", run=7, ttl_seconds=2)
    assert operation.run_id == f"{operation.operation_id}.7"
    assert operation.life == Life(owner="op-test.dl-1", run=7, apart_ms=2_000)
    assert an_operation().life.owner == "op-test"


def test_a_run_ends_with_what_the_record_of_its_key_needs() -> None:
    completion = an_operation(run=7, ttl_seconds=2).completion({"status": "succeeded"}, NOON)
    assert (completion.run, completion.fingerprint, completion.ttl_seconds) == (7, "f1", 2)


BODY = {
    "dependency": "payments",
    "request": {"method": "POST", "path": "/charges", "json": {"amount": 5, "note": "a"}},
}


def submitted(dependency: Dependency = PAYMENTS, **changes: Any) -> OperationInput:
    request = parse_operation(BODY | changes)
    return operation_from(request, dependency, ScopedKey("explicit", "evt-1"), source="http", now=NOON)


def problems_of(dependency: Dependency = PAYMENTS, **changes: Any) -> tuple[Problem, ...]:
    try:
        return tuple(excess_problems(parse_operation(BODY | changes), dependency, NOON))
    except InvalidInputError as error:
        return error.problems


def test_the_dependencys_policy_and_deadline_travel_with_the_operation() -> None:
    operation = submitted()
    assert operation.operation_id == operation_id_for("explicit", "evt-1")
    assert operation.policy == PAYMENTS.retry
    assert operation.timeouts == PAYMENTS.timeouts
    assert operation.deadline_at == after(3600)
    assert existing(operation.request)["method"] == "POST"
    assert (operation.key, operation.source, operation.created_at) == ("evt-1", "http", NOON)


def test_an_operation_brings_its_own_deadline_policy_and_events() -> None:
    event = {"type": "x", "queue": "abc", "data": None}
    operation = submitted(
        deadline_seconds=600, retry={"max_attempts": 3}, on_success=[event], correlation_id="c"
    )
    assert operation.deadline_at == after(600)
    assert operation.timeouts.deadline_seconds == 600
    assert operation.policy == RetryPolicy(max_attempts=3)
    assert operation.parts == {"outbox": {"on_success": [event]}}
    assert operation.correlation_id == "c"


@pytest.mark.parametrize("start", [{"delay_seconds": 300}, {"start_at": "2026-11-21T13:05:00+01:00"}])
def test_an_operation_begins_later_and_its_deadline_counts_from_there(start: dict[str, Any]) -> None:
    operation = submitted(deadline_seconds=600, **start)
    assert (operation.created_at, operation.start_at) == (NOON, after(300))
    assert operation.deadline_at == after(900)


@pytest.mark.parametrize("start", [{"delay_seconds": 0}, {"start_at": "2026-11-21T11:59:59Z"}])
def test_a_start_that_is_not_ahead_is_at_once(start: dict[str, Any]) -> None:
    assert submitted(**start) == submitted()


def test_a_start_more_than_a_year_ahead_is_refused() -> None:
    assert submitted(start_at="2027-11-21T12:00:00Z").start_at is not None
    assert problems_of(start_at="2027-11-21T12:00:01Z") == (
        Problem("/start_at", "is more than a year ahead"),
    )


def test_two_starts_are_refused() -> None:
    (problem,) = problems_of(start_at="2026-11-21T13:00:00Z", delay_seconds=5)
    assert problem.pointer == "/delay_seconds"


def test_an_operation_with_a_debounce_key_waits_for_a_later_one() -> None:
    operation = submitted(debounce_key="customer-7", debounce_seconds=5, deadline_seconds=600)
    assert (operation.start_at, operation.deadline_at) == (after(5), after(605))
    debounce = existing(debounce_of(operation))
    assert (debounce.key, debounce.seconds, debounce.accepted_at) == ("customer-7", 5.0, NOON)
    assert OperationInput.from_json(operation.to_json()) == operation
    assert debounce_of(operation.restarted(after(100))) == debounce
    assert "max_seconds" not in debounce.to_json()  # as before it could be given
    longest = debounce_of(submitted(debounce_key="customer-7", debounce_seconds=5, debounce_max_seconds=5))
    assert longest == replace(debounce, max_seconds=5.0)


def test_members_of_a_feature_that_the_app_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "members_by_feature", dict)
    found = problems_of(debounce_key="k", debounce_seconds=60)
    assert sorted(problem.pointer for problem in found) == ["/debounce_key", "/debounce_seconds"]


def test_a_maximum_below_the_wait_is_refused_with_both() -> None:
    (problem,) = problems_of(debounce_key="k", debounce_seconds=60, debounce_max_seconds=30)
    assert problem.detail == "is 30, less than debounce_seconds, which is 60"


@pytest.mark.parametrize(
    ("fields", "pointers"),
    [
        ({"debounce_key": "k"}, ["/debounce_key"]),
        ({"debounce_seconds": 5}, ["/debounce_seconds"]),
        ({"debounce_key": "k", "debounce_seconds": 0}, ["/debounce_seconds"]),
        ({"debounce_key": "k", "debounce_seconds": 86_401}, ["/debounce_seconds"]),
        ({"debounce_key": "", "debounce_seconds": 5}, ["/debounce_key"]),
        ({"debounce_max_seconds": 5}, ["/debounce_max_seconds"]),
        ({"debounce_key": "k", "debounce_seconds": 5, "debounce_max_seconds": 4}, ["/debounce_max_seconds"]),
        (
            {"debounce_key": "k", "debounce_seconds": 5, "debounce_max_seconds": "9"},
            ["/debounce_max_seconds"],
        ),
        (
            {"debounce_key": "k", "debounce_seconds": 5, "debounce_max_seconds": 1e6},
            ["/debounce_max_seconds"],
        ),
        ({"debounce_key": "k", "debounce_seconds": 5, "delay_seconds": 5}, ["/delay_seconds"]),
        ({"debounce_key": "k", "debounce_seconds": 5, "order_key": "o"}, ["/debounce_key"]),
        (
            {"debounce_key": "k", "start_at": "2026-11-21T13:00:00Z"},
            ["/start_at", "/debounce_key"],
        ),
    ],
)
def test_a_debounce_is_refused_by_every_mistake(fields: dict[str, Any], pointers: list[str]) -> None:
    assert [problem.pointer for problem in problems_of(**fields)] == pointers


def test_a_priority_is_that_of_the_operation_or_of_its_dependency() -> None:
    low = replace(PAYMENTS, priority="low")
    assert submitted().priority is None
    assert submitted(priority="high").priority is Priority.HIGH
    assert submitted(low).priority is Priority.LOW
    assert submitted(low, priority="normal").priority is None
    assert OperationInput.from_json(submitted(low).to_json()).priority is Priority.LOW
    assert problems_of(priority="urgent")[0].pointer == "/priority"


def test_debounce_keys_are_those_of_a_target() -> None:
    entities = {
        debounce_entity_for(target, key)
        for target in ("handler ship", "dependency ship")
        for key in ("k", "other")
    }
    assert len(entities) == 4


def test_a_later_start_is_kept_where_the_deadline_is_counted_anew() -> None:
    operation = submitted(deadline_seconds=600, delay_seconds=300)
    assert operation.restarted(after(100)).deadline_at == after(900)
    assert operation.restarted(after(400)).deadline_at == after(1000)


def test_no_deadline_is_allowed_with_limited_attempts() -> None:
    assert submitted(deadline_seconds=0).deadline_at is None


def test_a_preset_replaces_the_policy() -> None:
    assert submitted(retry={"preset": "none"}).policy == replace(PRESETS["none"].policy, max_attempts=1)


def test_what_goes_beyond_the_dependency_points_at_the_key() -> None:
    assert problems_of(retry={"max_attempts": 6})[0].pointer == "/retry/max_attempts"


def test_an_operation_may_be_retried_for_ever() -> None:
    endless = replace(PAYMENTS, retry=RetryPolicy(max_attempts=-1))
    assert submitted(endless, deadline_seconds=0).deadline_at is None


def test_the_fingerprint_covers_the_request_and_nothing_beside_it() -> None:
    first, second = submitted(), submitted(retry={"max_attempts": 1}, correlation_id="x")
    assert fingerprint_of(first.to_json()) == fingerprint_of(second.to_json())
    changed = {"method": "POST", "path": "/charges", "json": {"amount": 6, "note": "a"}}
    assert fingerprint_of(first.to_json()) != fingerprint_of(submitted(request=changed).to_json())


def test_no_fingerprint_is_made_where_all_of_the_content_counts() -> None:
    assert submitted().fingerprint is None
    assert fingerprint_of(submitted().to_json()) == fingerprint("dependency payments", submitted().request)


def test_the_fingerprint_may_cover_chosen_parts_only() -> None:
    chosen = replace(PAYMENTS, idempotency=IdempotencySettings(fingerprint=("/json/amount",)))
    changed = {"method": "POST", "path": "/charges", "json": {"amount": 5.0, "note": "b"}}
    assert None is not submitted(chosen).fingerprint == submitted(chosen, request=changed).fingerprint


@pytest.mark.parametrize(
    ("ttl_seconds", "history_for", "is_new_key", "keeps"),
    [
        (86_400, None, False, None),
        (86_400, timedelta(days=7), False, None),
        (86_400, timedelta(days=2, seconds=1), False, None),
        (86_400, timedelta(days=2), False, True),
        (86_400, timedelta(hours=1), False, True),
        (86_400, timedelta(hours=1), True, None),
        (60, timedelta(minutes=61), False, True),
        (60, timedelta(minutes=61, seconds=1), False, None),
    ],
)
def test_an_operation_keeps_a_record_where_its_history_may_not_last_for_its_key_and_a_run_as_long(
    ttl_seconds: float,
    history_for: timedelta | None,
    is_new_key: bool,  # noqa: FBT001 - of the submission
    keeps: object,
) -> None:
    operation = operation_from(
        parse_operation(BODY),
        replace(PAYMENTS, idempotency=IdempotencySettings(ttl_seconds=ttl_seconds)),
        ScopedKey("s", "k"),
        source="http",
        now=NOON,
        key_is_generated=is_new_key,
        history_for=history_for,
    )
    assert operation.keeps_record is keeps


def test_a_handlers_fingerprint_is_its_name_and_input() -> None:
    def of(handler: str, input_: Any) -> OperationInput:
        request = parse_operation({"handler": handler, "input": input_})
        return operation_from(request, PAYMENTS, ScopedKey("s", "k"), source="queue", now=NOON)

    prints = [fingerprint_of(of(*each).to_json()) for each in (("a", 1), ("a", 1.0), ("b", 1), ("a", 2))]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    assert (of("a", 1).handler, of("a", 1).request, of("a", 1).input) == ("a", None, 1)


def test_the_content_of_a_call_is_its_request_without_credentials() -> None:
    assert content_of(an_operation(request=WITH_CREDENTIALS).to_json(), Masking()) == {"request": MASKED}


@pytest.mark.parametrize("given", [{"id": 1}, None])
def test_the_content_of_a_handlers_operation_is_its_input(given: Any) -> None:
    operation = an_operation(handler="ship", request=None, input=given).to_json()
    assert content_of(operation, Masking()) == {"handler": "ship", "input": given}
    assert without_credentials(operation) == operation


def test_a_step_has_a_key_made_of_the_one_that_is_sent() -> None:
    assert an_operation(key="k").step_key("charge") == "k~charge"
    assert an_operation(key="k", downstream_key="k.2").step_key("charge") == "k.2~charge"
    long = an_operation(key="k" * 255).step_key("charge")
    assert long.startswith("sha256-")
    assert long != an_operation(key="k" * 255).step_key("mail")


def test_a_replay_continues_the_steps_of_the_run_that_it_names() -> None:
    assert an_operation(run=5).remembered_run == 5
    continued = an_operation(run=7, steps_run=5)
    assert continued.remembered_run == 5
    assert OperationInput.from_json(continued.to_json()).steps_run == 5
    assert "steps_run" not in an_operation().to_json()


LONG_NAMES = ["x" * 50 + str(number) for number in range(80)]


@pytest.mark.parametrize(
    "content",
    [
        {"request": {"method": "POST", "path": "/charges", "json": "x" * CONTENT_BYTES}},
        {"request": {"method": "POST", "path": "/charges", "json": dict.fromkeys(LONG_NAMES, 1)}},
        {"handler": "ship", "request": None, "input": "x" * CONTENT_BYTES},
        {"handler": "ship", "request": None, "input": [[None] * 500, {"a": [1.5] * 600}]},
    ],
)
def test_a_large_operation_is_read_from_the_input_of_its_start(content: dict[str, Any]) -> None:
    large = start_input(an_operation(**content), "s")
    assert (large["start_id"], large["input_id"]) == ("s", "s")


@pytest.mark.parametrize("content", [None, "x" * (CONTENT_BYTES - 4), {"a": "x" * (CONTENT_BYTES - 9)}])
def test_a_small_operation_travels_with_its_attempts(content: Any) -> None:
    small = start_input(an_operation(handler="ship", request=None, input=content), "s")
    assert small.keys() == {"operation", "start_id"}


def test_a_start_carries_the_slot_that_the_first_attempt_needs() -> None:
    needed = NeedsSlot({"max_concurrency": 4})
    assert NeedsSlot.from_json(start_input(an_operation(), "s", needed)["needed_slot"]) == needed


def test_an_attempt_that_is_owed_after_the_deadline_has_its_whole_time() -> None:
    late = an_operation(deadline_at=NOON)
    assert late.to_attempt(NOON, is_owed=True) == replace(late, deadline_at=None)
    assert late.to_attempt(NOON, is_owed=False) == late
    known = late.to_attempt(NOON, is_owed=False, acted_before=True)
    assert known == replace(late, acted_before=True)
    assert late.to_attempt(NOON - timedelta(seconds=1), is_owed=True) == late


def test_an_operation_without_a_limit_key_is_stored_without_a_member_for_it() -> None:
    assert "limit_key" not in submitted().to_json()
    assert submitted(limit_key="customer-17").to_json()["limit_key"] == "customer-17"
    assert [problem.pointer for problem in problems_of(limit_key="")] == ["/limit_key"]


@pytest.mark.parametrize(("most", "left"), [(5, 8), (UNLIMITED, UNLIMITED)])
def test_attempts_that_are_forgiven_do_not_count_for_the_policy_of_an_attempt(most: int, left: int) -> None:
    operation = an_operation(policy=RetryPolicy(max_attempts=most))
    assert operation.to_attempt(NOON, is_owed=False, forgiven=3).policy.max_attempts == left
