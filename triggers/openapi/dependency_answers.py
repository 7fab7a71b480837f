"""Answers about dependencies, their circuits and policies, and the app itself."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from engine.budget import RetryBudgetSettings
from engine.circuit.audit import Hand
from engine.circuit.settings import CircuitSettings
from engine.circuit.states import CircuitState
from engine.policy import RetryPolicy, Timeouts
from engine.vocabulary import Category
from triggers.openapi.operation_answers import UtcInstant


class CircuitAct(BaseModel):
    """One thing done to a circuit by hand."""

    at: UtcInstant
    action: Hand
    by: str
    reason: str
    until: UtcInstant | None


class CallBucket(BaseModel):
    """Calls that ended in one part of a circuit's window."""

    begins_at: Annotated[UtcInstant, Field(alias="from")]
    calls: int
    failures: int
    slow_calls: int


class CallWindow(BaseModel):
    """The last seconds of a dependency in ten equal parts, the oldest first."""

    bucket_seconds: float
    buckets: list[CallBucket]


class CircuitDocument(BaseModel):
    """The shared breaker of one dependency."""

    dependency: str
    state: CircuitState
    calls: int
    failures: int
    failure_ratio: Annotated[float | None, Field(description="null while the window is empty")]
    slow_calls: int
    window: CallWindow
    tripped_by: Annotated[
        CallWindow | None, Field(description="The window that last opened it; null when none did.")
    ]
    opened_at: UtcInstant | None
    retry_at: UtcInstant | None
    throttled_until: UtcInstant | None
    reason: str | None
    changed_by: str | None
    epoch: int
    waiting: int
    expires_at: UtcInstant | None
    audit: list[CircuitAct]


class CircuitPage(BaseModel):
    """Every circuit."""

    items: list[CircuitDocument]
    next_cursor: None


class CircuitChange(BaseModel):
    """What was done to a circuit."""

    dependency: str
    action: Hand
    reason: str
    for_seconds: float | None


class AuthDocument(BaseModel):
    """The header that proves who calls, its value masked."""

    header: str
    value: str


class IdempotencyDocument(BaseModel):
    """How a dependency recognises repeated requests."""

    header: str
    ttl_seconds: float
    fingerprint: list[str]


class WebhookDocument(BaseModel):
    """What events that go to a dependency are signed with, each masked."""

    secrets: list[str]


class DependencyDocument(BaseModel):
    """A downstream service, its secrets masked."""

    name: str
    base_url: str
    headers: dict[str, str]
    auth: AuthDocument | None
    timeouts: Timeouts
    retry: RetryPolicy
    circuit: CircuitSettings
    retry_budget: RetryBudgetSettings
    idempotency: IdempotencyDocument
    classify: dict[str, Category]
    webhook: WebhookDocument


class DependencyPage(BaseModel):
    """Every dependency."""

    items: list[DependencyDocument]
    next_cursor: None


class PolicyWait(BaseModel):
    """The wait after one attempt."""

    after_attempt: int
    least_seconds: float
    expected_seconds: float
    most_seconds: float


class PolicyTotal(BaseModel):
    """All waits together, and all attempts when each takes its whole timeout."""

    least_seconds: float
    expected_seconds: float
    most_seconds: float
    attempts_at_most_seconds: float


class PolicyPreview(BaseModel):
    """What a policy would do."""

    waits: list[PolicyWait]
    waits_complete: bool
    total: PolicyTotal
    deadline_seconds: float
    fits_deadline: bool


class HealthPart(BaseModel):
    """Whether one part works."""

    healthy: bool
    detail: str | None = None


class HealthDocument(BaseModel):
    """Whether the app can take operations over."""

    status: Literal["healthy", "unhealthy"]
    parts: dict[str, HealthPart]
