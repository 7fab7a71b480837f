"""What people see of alerts."""

from typing import Annotated, Literal

from pydantic import Field

from durable_retry.console.alerts.rules import DeliveryState, Silence
from durable_retry.engine.base.answers import Answer, Instant


class AlertMessage(Answer):
    """The message about the latest change to one receiver."""

    receiver: str
    state: DeliveryState
    tries: int
    detail: str | None


class AlertDocument(Answer):
    """One incident of a condition."""

    condition: str
    dependency: str | None
    title: str
    text: str
    state: Literal["firing", "silenced", "resolved"]
    value: float
    threshold: float
    raised_at: Instant
    resolved_at: Instant | None
    silence: Silence | None
    deliveries: tuple[AlertMessage, ...]


class AlertReceiver(Answer):
    """Where alerts are sent, without its path."""

    receiver: str
    format: Literal["dependency", "webhook", "slack", "teams"]
    host: str | None


class AlertBoard(Answer):
    """Everything about alerts."""

    items: Annotated[tuple[AlertDocument, ...], Field(description="Those that are raised, the newest first.")]
    recent: Annotated[tuple[AlertDocument, ...], Field(description="The latest incidents that ended.")]
    silences: tuple[Silence, ...]
    receivers: tuple[AlertReceiver, ...]
    thresholds: Annotated[dict[str, float], Field(description="By condition; 0 is off.")]
    next_cursor: None = None
