from typing import Any

import pytest

from durable_retry.hub.turns import renamed_in
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.operations.operation import CONTENT_BYTES, fingerprint_of
from durable_retry.rules.retry.loop import NeedsProbe
from durable_retry.rules.retry.slots import NeedsSlot
from orchestrators.outbox import outbox
from tests.support.builders import Activities, an_operation, failing, first, outcome
from tests.support.cuts import PartStage
from tests.support.stage import Stage
from tests.unit.orchestrators.test_outbox import World, an_event

SLOT = NeedsSlot({"max_concurrency": 1})
PROBE = NeedsProbe(CircuitSettings())


def asked(stage: Stage | PartStage) -> list[str]:
    """The entities that were asked, and those that were signalled, of all but the key's record."""
    called = [event.entityOperationCalled.targetInstanceId.value for event in stage.past]
    signaled = [event.entityOperationSignaled.targetInstanceId.value for event in stage.past]
    return [each for each in (*called, *signaled) if each and "record" not in each]


def renaming(*answers: dict[str, Any]) -> Activities:
    """Return activities whose first attempts answer so, each with the present name."""
    return first("attempt", (answer | {"renamed_to": "pay"} for answer in answers), failing(0))


@pytest.mark.parametrize(
    ("blocked", "entity"), [(SLOT, "@call_limiter@pay"), (PROBE, "@circuit_breaker@pay")]
)
def test_what_is_held_up_asks_the_entity_of_the_present_name(blocked: Any, entity: str) -> None:
    stage = Stage(an_operation(dependency="payments"), renaming({"stopped": blocked.to_json()}))
    assert stage.run()["dependency"] == "pay"
    assert set(asked(stage)) == {entity}


def test_an_operation_goes_on_under_the_present_name() -> None:
    failed = outcome(1, category="transient", status_code=503, error="no")
    submitted = an_operation(dependency="payments", fingerprint=None)
    stage = Stage(submitted, renaming(failed))
    shown = stage.run_until_waiting()
    assert (shown["dependency"], shown["attempt_count"]) == ("pay", 1)
    document = stage.run()
    assert (document["status"], document["dependency"]) == ("succeeded", "pay")
    second = [given for name, given in stage.activities if name == "attempt"][1]
    assert second["operation"]["dependency"] == "pay"
    assert second["operation"]["fingerprint"] == fingerprint_of(submitted.to_json())


def test_a_large_operation_is_sent_along_once_its_dependency_has_another_name() -> None:
    request = {"method": "POST", "path": "/", "query": {}, "headers": {}, "body": "x" * CONTENT_BYTES}
    stage = Stage(
        an_operation(dependency="payments", request=request),
        renaming(outcome(1, category="transient", status_code=503)),
    )
    assert stage.run()["status"] == "succeeded"
    calls = [given for name, given in stage.activities if name == "attempt"]
    assert ["operation" in call for call in calls] == [False, True]


@pytest.mark.parametrize("blocked", [SLOT, PROBE])
def test_a_webhook_asks_the_entity_of_the_present_name(blocked: Any) -> None:
    world = World(an_event(1, dependency="payments", path="/"))
    world.answers["op-1.1"] = [{"stopped": blocked.to_json(), "renamed_to": "pay"}]
    stage = PartStage(outbox, "outbox-op-1", {"operation_id": "op-1"}, world.answer)
    stage.run()
    assert world.attempts == [("1", 1), ("1", 1)]
    assert {each.rpartition("@")[2] for each in asked(stage)} == {"pay"}


@pytest.mark.parametrize("answered", [None, "dl-1", {}, {"renamed_to": 5}, {"renamed_to": None}])
def test_an_answer_without_a_name_renames_nothing(answered: Any) -> None:
    assert renamed_in(answered) is None
