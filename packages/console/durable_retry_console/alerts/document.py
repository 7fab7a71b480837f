"""What people see of alerts."""

from typing import Annotated, Literal

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, left_out
from durable_retry_console.alerts.rules import DeliveryState


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
    state: Literal["raised", "cleared"]
    value: float
    threshold: float
    raised_at: Instant
    cleared_at: Instant | None
    deliveries: tuple[AlertMessage, ...]
    runbook_url: Annotated[str | None, left_out("What to do. Left out without `ALERT_RUNBOOK_URL`.")] = None


class AlertReceiver(Answer):
    """Where alerts are sent, without its path."""

    receiver: Literal["webhook", "slack"]
    host: str


class AlertBoard(Answer):
    """Everything about alerts."""

    items: Annotated[tuple[AlertDocument, ...], Field(description="Those that are raised, the newest first.")]
    recent: Annotated[tuple[AlertDocument, ...], Field(description="The latest incidents that ended.")]
    receivers: tuple[AlertReceiver, ...]
    thresholds: Annotated[
        dict[str, float],
        Field(description="By condition, with `:` and a dependency where it has its own; 0 is off."),
    ]
    next_cursor: None = None


class AlertTest(Answer):
    """What became of a message that was sent to try a receiver."""

    receiver: Literal["webhook", "slack"]
    state: DeliveryState
    detail: Annotated[str | None, Field(description="Why it did not arrive; null when it did.")]


class AlertTests(Answer):
    """What became of a test, receiver by receiver."""

    condition: Annotated[Literal["test"], Field(description="What the messages are about.")]
    items: tuple[AlertTest, ...]
