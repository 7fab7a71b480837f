"""The completion of an operation as batches and sagas see it."""

import pytest

from durable_retry.engine.base.names import Category, OperationState
from durable_retry.engine.operations.completion import Completion


def document(status: str, **more: object) -> dict[str, object]:
    return {"operation_id": "op-1", "status": status, "attempt_count": 2, "dead_letter": None, **more}


def test_an_operation_that_goes_on_has_no_completion() -> None:
    assert Completion.of(document("waiting_retry")) is None


def test_a_success_has_no_error() -> None:
    completion = Completion.of(document("succeeded"))
    assert completion == Completion(operation_id="op-1", status=OperationState.SUCCEEDED, attempt_count=2)
    assert not completion.may_have_acted


def test_a_dead_letter_has_its_category_and_why() -> None:
    completion = Completion.of(
        document("dead_lettered", dead_letter={"category": "malformed", "reason": "R", "detail": "no"})
    )
    assert completion is not None
    assert (completion.category, completion.error, completion.may_have_acted) == (
        Category.MALFORMED,
        "R: no",
        False,
    )


@pytest.mark.parametrize(
    ("category", "status_code", "may_have_acted"),
    [("malformed", None, True), ("business_rule", None, False), ("business_rule", 409, True)],
)
def test_a_handler_may_have_acted_before_it_failed_unless_it_says_rejected(
    category: str, status_code: int | None, *, may_have_acted: bool
) -> None:
    """A bug comes after whatever the handler did before; so does the refusal of one of its calls."""
    letter = {"category": category, "reason": "RejectedByHandler", "detail": "no"}
    attempts = [{"status_code": status_code}]
    completion = Completion.of(document("dead_lettered", dead_letter=letter, attempts=attempts))
    assert completion is not None
    assert Completion.from_json(completion.to_json()).may_have_acted is may_have_acted


def test_a_cancelled_operation_may_have_acted() -> None:
    completion = Completion.of(document("cancelled"))
    assert completion is not None
    assert (completion.error, completion.may_have_acted) == ("cancelled", True)


@pytest.mark.parametrize("category", [None, Category.TRANSIENT])
def test_a_completion_travels_as_json(category: Category | None) -> None:
    completion = Completion(
        operation_id="op-1", status=OperationState.DEAD_LETTERED, category=category, error="no"
    )
    assert Completion.from_json(completion.to_json()) == completion
