from typing import Any

from durable_retry.base.names import OperationState
from durable_retry.features.workflows.rules.shapes import Saga, SagaStep
from durable_retry.rules.operations.completion import Completion
from orchestrators.saga import saga
from tests.support.builders import NOON, an_operation
from tests.support.cuts import PartStage


def test_the_end_of_the_step_before_does_not_end_the_next_one() -> None:
    """A turn that was lost may have looked at the step before, which had ended when the turn ran again."""
    steps = [SagaStep(name=id_, operation=an_operation(operation_id=id_)) for id_ in ("op-1", "op-2")]
    state = Saga(saga_id="saga-1", steps=tuple(steps), created_at=NOON)
    looked: list[str] = []

    def answer(_name: str, given: dict[str, Any]) -> Any:
        operation_id = given["operation"]["operation_id"]
        looked.append(operation_id)
        ended = "op-1" if looked == ["op-1", "op-2"] else operation_id
        done = Completion(operation_id=ended, status=OperationState.SUCCEEDED, attempt_count=1)
        return {"ending": done.to_json()}

    PartStage(saga, "saga-1", {"saga": state.to_json()}, answer).run()
    assert looked == ["op-1", "op-2", "op-2"]
