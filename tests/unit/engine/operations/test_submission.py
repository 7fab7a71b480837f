from dataclasses import replace
from typing import Any

import pytest

from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.config.dependency import Dependency, IdempotencySettings
from durable_retry.engine.operations.idempotency import operation_id_for
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.request import parse_operation
from durable_retry.engine.operations.submission import operation_from
from durable_retry.engine.retry.policy import PRESETS, RetryPolicy
from tests.support.builders import NOON, PAYMENTS, after

BODY = {
    "dependency": "payments",
    "request": {"method": "POST", "path": "/charges", "json": {"amount": 5, "note": "a"}},
}


def submitted(dependency: Dependency = PAYMENTS, **changes: Any) -> OperationInput:
    request = parse_operation(BODY | changes)
    return operation_from(request, dependency, key="evt-1", scope="explicit", source="http", now=NOON)


def problems_of(dependency: Dependency = PAYMENTS, **changes: Any) -> tuple[Problem, ...]:
    with pytest.raises(InvalidInputError) as caught:
        submitted(dependency, **changes)
    return caught.value.problems


def test_the_dependencys_policy_and_deadline_travel_with_the_operation() -> None:
    operation = submitted()
    assert operation.operation_id == operation_id_for("explicit", "evt-1")
    assert operation.policy == PAYMENTS.retry
    assert operation.timeouts == PAYMENTS.timeouts
    assert operation.deadline_at == after(3600)
    assert operation.request is not None
    assert operation.request["method"] == "POST"
    assert (operation.key, operation.source, operation.created_at) == ("evt-1", "http", NOON)


def test_an_operation_brings_its_own_deadline_policy_and_events() -> None:
    event = {"type": "x", "queue": "abc", "data": None}
    operation = submitted(
        deadline_seconds=600, retry={"max_attempts": 3}, on_success=[event], correlation_id="c"
    )
    assert operation.deadline_at == after(600)
    assert operation.timeouts.deadline_seconds == 600
    assert operation.policy == RetryPolicy(max_attempts=3)
    assert operation.on_success == (event,)
    assert operation.correlation_id == "c"


def test_no_deadline_is_allowed_with_limited_attempts() -> None:
    assert submitted(deadline_seconds=0).deadline_at is None


def test_a_preset_replaces_the_policy() -> None:
    assert submitted(retry={"preset": "none"}).policy == replace(PRESETS["none"].policy, max_attempts=1)


def test_what_goes_beyond_the_dependency_points_at_the_key() -> None:
    assert problems_of(retry={"max_attempts": 6})[0].pointer == "/retry/max_attempts"


def test_a_deadline_that_the_policy_cannot_do_without_points_at_the_deadline() -> None:
    endless = replace(PAYMENTS, retry=RetryPolicy(max_attempts=-1))
    assert problems_of(endless, deadline_seconds=0)[0].pointer == "/deadline_seconds"


def test_the_fingerprint_covers_the_request_and_nothing_beside_it() -> None:
    assert submitted().fingerprint == submitted(retry={"max_attempts": 1}, correlation_id="x").fingerprint
    changed = {"method": "POST", "path": "/charges", "json": {"amount": 6, "note": "a"}}
    assert submitted().fingerprint != submitted(request=changed).fingerprint


def test_the_fingerprint_may_cover_chosen_parts_only() -> None:
    chosen = replace(PAYMENTS, idempotency=IdempotencySettings(fingerprint=("/json/amount",)))
    changed = {"method": "POST", "path": "/charges", "json": {"amount": 5.0, "note": "b"}}
    assert submitted(chosen).fingerprint == submitted(chosen, request=changed).fingerprint


def test_a_handlers_fingerprint_is_its_name_and_input() -> None:
    def of(handler: str, input_: Any) -> OperationInput:
        request = parse_operation({"handler": handler, "input": input_})
        return operation_from(
            request, PAYMENTS, key="k", scope="s", source="queue", now=NOON, replay_of="dl-1"
        )

    assert of("a", {"x": 1}).fingerprint == of("a", {"x": 1.0}).fingerprint
    assert of("a", {"x": 1}).fingerprint != of("b", {"x": 1}).fingerprint
    assert of("a", {"x": 1}).fingerprint != of("a", {"x": 2}).fingerprint
    assert (of("a", 1).handler, of("a", 1).request, of("a", 1).input) == ("a", None, 1)
    assert of("a", 1).replay_of == "dl-1"
