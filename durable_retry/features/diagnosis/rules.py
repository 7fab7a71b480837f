"""What a diagnosis shows, and the parts that its orchestration has reached."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pydantic import Field

from durable_retry.base.answers import Answer, read_or
from durable_retry.base.json_forms import JsonShape


class PartState(StrEnum):
    """What is known of a part."""

    OK = "ok"
    WAITING = "waiting"
    FAILED = "failed"


class DiagnosedPart(Answer):
    """One part that an operation needs."""

    name: str = Field(description="`storage`, `queues`, `packages`, `start`, `entity`, ...")
    state: PartState
    detail: str | None = Field(default=None, description="What was seen; null where there is nothing to say.")
    at: datetime | None = Field(default=None, description="When the orchestration reached it.")


class Diagnosis(Answer):
    """How far a diagnosis is: its parts in the order in which an operation needs them."""

    diagnosis_id: str
    role: str = Field(description="Of the caller, as the app sees it.")
    caller: str = Field(description="Name of the caller; `api` when it is not known.")
    parts: list[DiagnosedPart]


REACHED: Final = ("start", "entity", "timer", "activity", "index")
"""What the orchestration goes through."""


@dataclass(frozen=True, slots=True)
class _Failure(JsonShape):
    """The part that failed, and why."""

    part: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Progress(JsonShape):
    """The custom status of a diagnosis: when it reached each part, and what failed."""

    reached: Mapping[str, datetime] = field(default_factory=dict)
    failed: _Failure | None = None


def reached_parts(custom_status: Any, failure: str | None) -> list[DiagnosedPart]:
    """Return the parts that the orchestration goes through; `failure` is None while it has not failed."""
    progress = read_or(
        lambda: _Progress.from_json(custom_status or {}),
        lambda reason: _Progress(failed=_Failure(REACHED[0], reason)),
    )
    reached, failed = progress.reached, progress.failed
    if failure is not None and failed is None:
        first = next((name for name in REACHED if name not in reached), REACHED[-1])
        failed = _Failure(first, failure)
    return [_reached_part(name, reached.get(name), failed) for name in REACHED]


def _reached_part(name: str, at: datetime | None, failed: _Failure | None) -> DiagnosedPart:
    if at is not None:
        return DiagnosedPart(name=name, state=PartState.OK, at=at)
    if failed is not None and failed.part == name:
        return DiagnosedPart(name=name, state=PartState.FAILED, detail=failed.detail)
    return DiagnosedPart(name=name, state=PartState.WAITING)
