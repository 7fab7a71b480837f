"""The activities of an operation: one attempt, the commit of a success, the dead letter of a failure."""

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.json_forms import TraceContext
from durable_retry.engine.base.names import ATTEMPT, COMMIT, DEAD_LETTER, OperationState
from durable_retry.engine.operations.operation import OperationInput, outbox_id_for
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import AdmissionState, blocked_to_json
from durable_retry.services.attempt.attempt import attempt_operation, read_by_digest
from durable_retry.stores.dead_letters.records import keep_operation, keep_unreadable
from durable_retry.stores.operation_notes import note_state
from durable_retry.stores.operation_writes import commit_success
from durable_retry.stores.tables import StorageRefusedError
from durable_retry.stores.task_hub import bind_hub, read_record

blueprint = df.Blueprint()


async def attempt(call: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Make one attempt, if the retry budget and the circuit of its dependency let it start.

    Args:
        call: `operation`, an `OperationInput`, or `operation_id` and `digest` of a large one; `run`, its run
            number; `attempt`, from 1; `ticket`, an `AdmissionState`.
        hub: Configuration of the durable client.

    Returns:
        The JSON form of an `AttemptOutcome`, or `{"stopped": ...}` with what blocks it.
    """
    if "digest" in call:
        operation = await read_by_digest(hub, call["operation_id"], call["digest"])
    else:
        operation = OperationInput.from_json(call["operation"])
    operation = operation.in_run(call.get("run", 1))
    admission = AdmissionState.from_json(call.get("ticket") or {})
    answer = await attempt_operation(hub, operation, call["attempt"], admission)
    return answer.to_json() if isinstance(answer, AttemptOutcome) else {"stopped": blocked_to_json(answer)}


blueprint.activity_trigger(input_name="call", activity=ATTEMPT)(bind_hub(blueprint)(attempt))


async def commit(success: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Commit a success. Idempotent.

    The claim is read first: a run that lost it commits nothing. It may lose it right after; then the fence in
    the transaction keeps its rows from a handler's later ones (`stores.operation_writes`).

    Args:
        success: `operation_id`, `run`, `result`, `writes`, `events`, `correlation_id`, `trace`.
        hub: Configuration of the durable client.

    Returns:
        `events` as the status document shows them, and `rejected`: why the writes can never be made, or None.

    Raises:
        TaskHubUnavailableError: Whether this run still holds its claim is not known.
    """
    operation_id, run = success["operation_id"], success.get("run", 1)
    record = await read_record(hub, operation_id)
    if record is not None and record.run > run:
        return {"events": [], "rejected": f"run {record.run} of this key holds the claim; run {run} lost it"}
    try:
        events = await commit_success(
            outbox_id_for(operation_id, run),
            success["result"],
            success["writes"],
            success["events"],
            clock.now(),
            correlation_id=success.get("correlation_id"),
            trace=TraceContext.from_json(success.get("trace")),
        )
    except (StorageRefusedError, ValueError, TypeError) as error:
        return {"events": [], "rejected": str(error)[:500]}
    return {"events": events, "rejected": None}


blueprint.activity_trigger(input_name="success", activity=COMMIT)(bind_hub(blueprint)(commit))


async def dead_letter(entry: dict) -> str:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Store the dead letter of an operation. Idempotent.

    Args:
        entry: `operation`, `category`, `reason`, `detail`, `attempts`; of an operation whose input cannot be
            read `operation_id`, `unreadable` (the input) and `detail`.

    Returns:
        Its id.
    """
    if "unreadable" in entry:
        given, detail = entry["unreadable"], entry["detail"]
        return await keep_unreadable(entry["operation_id"], given, detail, clock.now())
    dead_letter_id = await keep_operation(entry, clock.now())
    errors = [attempt["error"] for attempt in entry["attempts"][-1:] if attempt["error"]]
    error = "\n".join((*errors, entry["reason"], entry["detail"]))
    note_state(OperationInput.from_json(entry["operation"]), OperationState.DEAD_LETTERED, error)
    return dead_letter_id


blueprint.activity_trigger(input_name="entry", activity=DEAD_LETTER)(dead_letter)
