"""The orchestration of a diagnosis: it uses every part that an operation uses, and notes how far it came."""

from datetime import UTC, timedelta
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.features.diagnosis.names import DIAGNOSE, DIAGNOSIS
from durable_retry.hub.turns import Turns
from durable_retry.operations.entities import record_id
from durable_retry.settings.configuration import function_name

blueprint = df.Blueprint()

# After this the diagnosis gives up, so that it does not stay in the task hub for ever.
_ENTITY_ANSWERS_WITHIN: Final = timedelta(minutes=5)

_TIMER: Final = timedelta(seconds=1)


def diagnosis(ctx: task.OrchestrationContext, _: object) -> Turns[None]:
    """Call an entity, a timer, an activity; the custom status says what was reached, and when."""
    reached: dict[str, Any] = {}

    def note(part: str) -> None:
        reached[part] = to_rfc3339(ctx.current_utc_datetime.replace(tzinfo=UTC))
        ctx.set_custom_status({"reached": dict(reached)})

    def fail(part: str, detail: str) -> None:
        ctx.set_custom_status({"reached": dict(reached), "failed": {"part": part, "detail": detail}})

    note("start")
    now = to_rfc3339(ctx.current_utc_datetime.replace(tzinfo=UTC))
    answer = ctx.call_entity(record_id(ctx.instance_id), "expire", {"now": now})  # no record, no change
    try:
        first = yield task.when_any([answer, ctx.create_timer(_ENTITY_ANSWERS_WITHIN)])
        if first is not answer:
            fail("entity", f"no answer within {_ENTITY_ANSWERS_WITHIN.total_seconds():.0f} s")
            return
        answer.get_result()
    except task.TaskFailedError as error:
        fail("entity", str(error))
        return
    note("entity")
    yield ctx.create_timer(_TIMER)
    note("timer")
    try:
        trouble = yield ctx.call_activity(function_name(DIAGNOSE), input={"diagnosis_id": ctx.instance_id})
    except task.TaskFailedError as error:
        fail("activity", str(error))
        return
    note("activity")
    if trouble:
        fail("index", trouble)
        return
    note("index")


blueprint.orchestration_trigger(context_name="context", orchestration=DIAGNOSIS)(diagnosis)
