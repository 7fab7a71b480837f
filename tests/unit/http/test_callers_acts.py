import json
from typing import Any

import azure.functions as func
import pytest

from durable_retry.base.validation import validated
from durable_retry.http.callers import ANYBODY, Act, report_act
from durable_retry.routing import table
from durable_retry.rules.facts import PersonActed, TargetType
from durable_retry.telemetry import facts
from durable_retry.telemetry.facts import subscribe

DONE = Act("archived the dead letter", TargetType.DEAD_LETTER)


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[PersonActed]:
    acts: list[PersonActed] = []
    monkeypatch.setattr(facts, "_receivers", {})
    subscribe(PersonActed, acts.append)
    return acts


def answered(act: Act, document: dict[str, Any], **given: Any) -> None:
    report_act(act, {"who": ANYBODY, **given}, "dl-1", func.HttpResponse(json.dumps(document)))


def declared(path: str, **body: Any) -> tuple[Act, Any]:
    """The act of a route, and a body of it."""
    (route,) = (each for each in table() if (each.method, each.path) == ("POST", path))
    assert route.act is not None
    assert route.body is not None
    return route.act, validated(route.body, body)


def said(path: str, **body: Any) -> str:
    """What the activity says of a call of a route."""
    act, checked = declared(path, **body)
    return act.what if isinstance(act.what, str) else act.what(checked)


@pytest.mark.parametrize(
    ("document", "dependency"),
    [
        ({"dependency": "payments"}, "payments"),
        ({"operation": {"dependency": "payments"}}, "payments"),
        ({"sample": {"dependency": "payments"}}, "payments"),
        ({"filter": {"dependency": "payments"}}, "payments"),
        ({"operation": None, "filter": {"dependency": None}}, None),
    ],
)
def test_the_dependency_is_that_of_what_was_acted_on(
    acts: list[PersonActed], document: dict[str, Any], dependency: str | None
) -> None:
    answered(DONE, document)
    assert [(act.who, act.target_id, act.dependency) for act in acts] == [("api", "dl-1", dependency)]


def test_an_answer_without_the_id_is_no_act(acts: list[PersonActed]) -> None:
    begun = Act("began", TargetType.BULK_ACTION, "action_id")
    answered(begun, {"matched": 3})
    answered(begun, {"action_id": "bulk-1"})
    assert [act.target_id for act in acts] == ["bulk-1"]


def test_what_is_done_to_many_says_what_and_of_which_dependency() -> None:
    change = [{"op": "remove", "path": "/request/json/amount"}]
    chosen = {"dependency": "payments"}
    assert said("bulk-actions", action="replay", filter={}) == "began to replay many dead letters"
    changed = said("bulk-actions", action="replay", filter={}, patch=change)
    assert changed == "began to change and replay many dead letters"
    assert said("bulk-actions", action="retry_now", filter=chosen) == "began to retry now many operations"


def test_the_dependency_of_many_is_that_of_their_filter(acts: list[PersonActed]) -> None:
    chosen = {"dependency": "payments"}
    for body in (
        {"action": "replay", "filter": chosen},
        {"action": "archive", "filter": chosen},
        {"action": "archive", "ids": ["dl-1"]},
    ):
        act, checked = declared("bulk-actions", **body)
        answered(act, {act.id_in_answer or "": "bulk-1"}, body=checked)
    assert [act.dependency for act in acts] == ["payments", "payments", None]
