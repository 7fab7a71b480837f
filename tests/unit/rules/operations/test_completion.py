import pytest

from durable_retry.base.names import Category, OperationState
from durable_retry.rules.operations.completion import Completion, values_at
from tests.support.narrowing import existing


def document(status: str, **more: object) -> dict[str, object]:
    attempts = [{"status_code": 503}, {"status_code": 422}]
    known = {"operation_id": "op-1", "status": status, "attempt_count": 2, "attempts": attempts}
    return {**known, "dead_letter": None, **more}


def test_an_operation_that_goes_on_has_no_completion() -> None:
    assert Completion.of(document("waiting_retry")) is None


def test_a_success_has_no_error() -> None:
    completion = Completion.of(document("succeeded"))
    assert completion == Completion(operation_id="op-1", status=OperationState.SUCCEEDED, attempt_count=2)
    assert not completion.may_have_acted


def test_a_dead_letter_has_its_category_and_why() -> None:
    completion = Completion.of(
        document(
            "dead_lettered",
            dead_letter={"id": "dl-1", "category": "malformed", "reason": "R", "detail": "no"},
        )
    )
    assert completion is not None
    assert completion == Completion(
        operation_id="op-1",
        status=OperationState.DEAD_LETTERED,
        category=Category.MALFORMED,
        attempt_count=2,
        error="R: no",
        status_code=422,
        dead_letter_id="dl-1",
    )


@pytest.mark.parametrize(
    ("status", "category", "member", "may_have_acted"),
    [
        ("dead_lettered", "malformed", {"may_have_acted": True}, True),
        ("dead_lettered", "malformed", {}, False),
        ("dead_lettered", "ambiguous", {}, True),
        ("cancelled", None, {"may_have_acted": True}, True),
        ("cancelled", None, {}, False),
        ("succeeded", None, {"may_have_acted": True}, False),
    ],
)
def test_what_any_attempt_may_have_done_goes_with_the_end(
    status: str, category: str | None, member: dict[str, bool], *, may_have_acted: bool
) -> None:
    letter = None if category is None else {"category": category, "reason": "R", "detail": "no"}
    completion = existing(Completion.of(document(status, dead_letter=letter, **member)))
    assert Completion.from_json(completion.to_json()).may_have_acted is may_have_acted


@pytest.mark.parametrize("category", [None, Category.TRANSIENT])
def test_a_completion_travels_as_json(category: Category | None) -> None:
    completion = Completion(
        operation_id="op-1", status=OperationState.DEAD_LETTERED, category=category, error="no"
    )
    assert Completion.from_json(completion.to_json()) == completion


def test_a_masked_part_of_a_result_is_no_value() -> None:
    result = {"json": {"id": 7, "a": {"key": "***"}, "a2": 8}, "masked": ["/json/a/key"]}
    pointers = ["", "/json", "/json/id", "/json/a", "/json/a/key", "/json/a/key/x", "/json/a2"]
    assert values_at(result, pointers) == {"/json/id": 7, "/json/a2": 8}
    assert values_at(result | {"masked": [""]}, pointers) == {}
    assert values_at({"json": "*** of its own"}, ["/json"]) == {"/json": "*** of its own"}
