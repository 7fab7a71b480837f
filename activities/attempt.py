"""The activity `attempt`: one attempt of an operation. Only a failure of our own storage fails it."""

from dataclasses import replace

import azure.durable_functions as df

from durable_retry.engine.base.names import ATTEMPT
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import AdmissionState, blocked_to_json
from durable_retry.services.attempt.attempt import attempt_operation

blueprint = df.Blueprint()


async def attempt(call: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Make one attempt, if the retry budget and the circuit of its dependency let it start.

    Args:
        call: `operation`, an `OperationInput`; `run`, its run number; `attempt`, from 1; `ticket`, an
            `AdmissionState`.
        hub: Configuration of the durable client.

    Returns:
        The JSON form of an `AttemptOutcome`, or `{"stopped": ...}` with what blocks it.
    """
    operation = replace(OperationInput.from_json(call["operation"]), run=call.get("run", 1))
    admission = AdmissionState.from_json(call.get("ticket") or {})
    answer = await attempt_operation(hub, operation, call["attempt"], admission)
    return answer.to_json() if isinstance(answer, AttemptOutcome) else {"stopped": blocked_to_json(answer)}


blueprint.activity_trigger(input_name="call", activity=ATTEMPT)(
    blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)(attempt)
)
