"""HTTP: a diagnosis of each part that an operation needs."""

from pydantic import Field

from durable_retry.base.answers import Answer
from durable_retry.features.diagnosis.parts import find_diagnosis, start_diagnosis
from durable_retry.features.diagnosis.rules import Diagnosis
from durable_retry.http.answers import required
from durable_retry.http.callers import Caller
from durable_retry.http.routes import Routes, accepted
from durable_retry.hub.binding import TaskHub

routes = Routes("the app")


class StartedDiagnosis(Answer):
    """A diagnosis that was started."""

    diagnosis_id: str = Field(description="Ask for it at `diagnoses/{diagnosis_id}`.")


@routes.post("diagnoses", answers=accepted(StartedDiagnosis, "It was started."))
async def start_a_diagnosis(hub: TaskHub) -> StartedDiagnosis:
    """Start a diagnosis: an orchestration that calls an entity, waits for a timer and calls an activity."""
    return StartedDiagnosis(diagnosis_id=await start_diagnosis(hub))


@routes.get("diagnoses/{diagnosis_id}")
async def get_diagnosis(diagnosis_id: str, who: Caller, hub: TaskHub) -> Diagnosis:
    """Show how far a diagnosis is, part by part."""
    document = await find_diagnosis(hub, diagnosis_id, role=who.role.value, caller=who.name)
    return required(document, "diagnosis of this id")
