"""An orchestration instance as a task hub shows it, with its payloads parsed."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from durabletask.client import OrchestrationState, OrchestrationStatus

from durable_retry.base.documents import json_object

ENDED_BADLY: Final = frozenset({OrchestrationStatus.FAILED, OrchestrationStatus.TERMINATED})
"""`upkeep.failures` follows these up."""

_NOTHING: Final = (None, "", "null", '""')
"""Payloads of instances that set none, on one backend or another."""

_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Instance:
    """One orchestration instance with its payloads parsed as plain JSON."""

    instance_id: str  # equals the operation id
    runtime_status: OrchestrationStatus  # the task hub's status
    created_at: datetime  # aware UTC instant of its start
    updated_at: datetime  # aware UTC instant of its last turn
    input: dict[str, Any]  # its input; what is no JSON object is its member `text`
    custom_status: dict[str, Any] | None  # the last one set; None before the first turn
    output: dict[str, Any] | None  # the return value; None while it runs
    failure: str | None = None  # why it failed or was terminated; None unless it was
    # Why its custom status or output cannot be read; None when they can, or there are none.
    unreadable: str | None = None
    # Activities that its present execution asked for, by their names in the app; None when that is not known.
    # Read of an operation that ended badly only.
    asked_for: frozenset[str] | None = None

    @classmethod
    def of(cls, state: OrchestrationState) -> Self:
        """Read an instance, whatever its payloads hold."""
        custom_status = json_object(state.serialized_custom_status)
        output = json_object(state.serialized_output)
        return cls(
            instance_id=state.instance_id,
            runtime_status=state.runtime_status,
            created_at=state.created_at.replace(tzinfo=UTC),
            updated_at=state.last_updated_at.replace(tzinfo=UTC),
            input=_input_of_text(state.serialized_input),
            custom_status=custom_status,
            output=output,
            failure=_failure_of_state(state),
            unreadable=_unreadable_payload(state, custom_status, output),
        )


def unseen_instance(instance_id: str, created_at: datetime, reason: str) -> Instance:
    """Return a stand-in for an instance that cannot be read; only its creation is known."""
    return Instance(
        instance_id=instance_id,
        runtime_status=OrchestrationStatus.RUNNING,
        created_at=created_at,
        updated_at=created_at,
        input={},
        custom_status=None,
        output=None,
        unreadable=reason,
    )


def _input_of_text(text: str | None) -> dict[str, Any]:
    value = json_object(text)
    if value is None:
        return {"text": text} if text else {}
    return value


def _failure_of_state(state: OrchestrationState) -> str | None:
    """Return why an orchestration failed or was terminated.

    On Azure Storage its output says so, as plain text; the reason of a termination may be text in JSON.
    """
    if state.runtime_status not in ENDED_BADLY:
        return None
    message = None if state.failure_details is None else state.failure_details.message
    return message or _plain_text(state.serialized_output) or "the platform does not say why"


def _plain_text(text: str | None) -> str | None:
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def _unreadable_payload(
    state: OrchestrationState, custom_status: dict[str, Any] | None, output: dict[str, Any] | None
) -> str | None:
    payloads = [("custom status", state.serialized_custom_status, custom_status)]
    # The output of others is a text: why it failed, or was terminated.
    if state.runtime_status is OrchestrationStatus.COMPLETED:
        payloads.append(("output", state.serialized_output, output))
    for name, text, read in payloads:
        if read is None and text not in _NOTHING:
            return f"its {name} is no JSON object: {text:.{_SHOWN_CHARS}}"
    return None
