"""What an orchestration sends to have one attempt made."""

from dataclasses import dataclass, field

from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.loop import AdmissionState, StepAdmission


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCall(JsonShape):
    """The input of the activity `attempt`: an operation, or where to find a large one, see `start_input`."""

    operation: OperationInput | None = None
    operation_id: str | None = None  # with the digest alone
    digest: str | None = None
    attempt: int  # from 1
    admission: AdmissionState = field(default_factory=AdmissionState)
    # Whether the attempt is made although the deadline has passed.
    is_owed: bool = False
    # Whether an earlier attempt of the same key ended without a clear refusal; None for not.
    acted_before: bool | None = None
    step: StepAdmission | None = None  # of a step at another dependency
