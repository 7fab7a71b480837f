"""HTTP: the circuit of each dependency, and manual control of it."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, Final

import azure.functions as func
from pydantic import BaseModel, Field

from durable_retry import clock
from durable_retry.engine.base.validation import Strict, checked
from durable_retry.engine.circuit import (
    CircuitState,
    ManualAction,
    ManualControl,
    ManualControlMessage,
    view_of,
)
from durable_retry.engine.dependency import Dependency
from durable_retry.engine.limits import Limiter, limits_summary, limits_view, shared_limits_at
from durable_retry.settings.configuration import dependencies, find_dependency
from durable_retry.stores.circuit import CircuitEntity, start_release
from durable_retry.stores.circuit_cache import circuit_time
from durable_retry.triggers.http.answers import ConflictError, etag_of, json_answer, page_answer, required
from durable_retry.triggers.http.callers import Caller
from durable_retry.triggers.http.documents import UtcInstant
from durable_retry.triggers.http.routes import (
    AWAY,
    CONFLICT,
    MISSING,
    Declaration,
    Routes,
    accepted,
    page,
    shown,
)

routes = Routes("circuits")

_YEAR_SECONDS: Final = 31_536_000.0
MOVING: Final = frozenset({"from"})
"""Fields of a circuit's document that the entity tag leaves out: they change with the time of the request."""

_RELEASING: Final = frozenset({ManualControl.CLOSE, ManualControl.DISABLE, ManualControl.RESET})
"""After these, operations that wait for the circuit are woken."""


class CircuitAct(BaseModel):
    """One manual change of a circuit."""

    at: UtcInstant
    action: ManualControl
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


class CircuitFigures(BaseModel):
    """Where the circuit of a dependency stands."""

    dependency: str
    state: CircuitState
    calls: int
    failures: int
    failure_ratio: Annotated[float | None, Field(description="null while the window is empty")]
    slow_calls: int
    opened_at: UtcInstant | None
    retry_at: UtcInstant | None
    throttled_until: UtcInstant | None
    reason: str | None
    changed_by: str | None


class QuotaDocument(BaseModel):
    """What is left of a dependency's own rate limit, as its latest answer stated."""

    remaining: float
    limit: Annotated[float, Field(description="Of a whole window: as stated, else the most that was seen.")]
    until: Annotated[UtcInstant, Field(description="End of the window.")]
    starts_per_second: Annotated[
        float | None, Field(description="The pace; null while more than half is left.")
    ]


class CircuitDocument(CircuitFigures):
    """The shared breaker of one dependency."""

    window: CallWindow
    tripped_by: Annotated[
        CallWindow | None, Field(description="The window that last opened it; null when none did.")
    ]
    quota: Annotated[
        QuotaDocument | None, Field(description="null unless workers reported it as low in this window")
    ]
    epoch: int
    waiting: int
    expires_at: UtcInstant | None
    audit: list[CircuitAct]


class LimitsSummary(BaseModel):
    """The limits of a dependency at this moment; 0 means no limit."""

    max_concurrency: Annotated[int, Field(description="Attempts at once, as configured.")]
    current_concurrency: Annotated[int, Field(description="What adaptive concurrency makes of it.")]
    rate_per_second: Annotated[float, Field(description="Starts per second, as configured.")]
    current_rate_per_second: Annotated[float, Field(description="What the pace makes of it.")]
    shared_concurrency: Annotated[
        int, Field(description="Of the attempts at once, what workers start of their own accord.")
    ]
    pace: Annotated[str | None, Field(description="Why the rate is lower than configured; null if not.")]


class LimitsDocument(LimitsSummary):
    """The limits of a dependency at this moment, and their use."""

    lent: Annotated[int, Field(description="Attempts under way beyond the workers' shares.")]
    waiting: Annotated[int, Field(description="About how many attempts wait for their turn.")]


class ListedCircuit(CircuitDocument):
    """The shared breaker of one dependency, and its limits without their use."""

    limits: LimitsSummary


class LimitedCircuit(CircuitDocument):
    """The shared breaker of one dependency, and its limits."""

    limits: LimitsDocument


class CircuitPage(BaseModel):
    """Every circuit."""

    items: list[ListedCircuit]
    next_cursor: None


class CircuitOpening(BaseModel):
    """One opening of a circuit, and what the circuit saw then."""

    at: UtcInstant
    epoch: int
    state: Annotated[CircuitState, Field(description="open, or forced_open by hand")]
    reason: str
    by: str
    calls: Annotated[int, Field(description="In the window; 0 after a failed probe.")]
    failures: int
    failure_ratio: float | None
    slow_calls: int
    break_seconds: Annotated[float | None, Field(description="null for a hold without an end")]
    last_category: Annotated[str | None, Field(description="Of the last failure reported with it.")]
    last_error: str | None


class OpeningPage(BaseModel):
    """The openings that are kept."""

    items: list[CircuitOpening]
    next_cursor: None


class CircuitChange(BaseModel):
    """A manual change that was accepted."""

    dependency: str
    action: ManualControl
    reason: str
    for_seconds: float | None


def _blank(reason: str) -> str | None:
    return None if reason.strip() else "must say why"


class ManualControlBody(Strict):
    """The body of a manual change.

    Attributes:
        reason: Why, for the audit; 200 characters of it are kept.
        for_seconds: How long opening or disabling lasts; None means until the next manual change. Closing and
            resetting have no length.
        epoch: Of the circuit as the caller saw it; in any other nothing is changed. None changes it anyway.
    """

    reason: Annotated[str, Field(max_length=2_000), checked(_blank)]
    for_seconds: Annotated[float, Field(gt=0, le=_YEAR_SECONDS)] | None = None
    epoch: Annotated[int, Field(ge=1)] | None = None


@routes.get("circuits", answers=page(CircuitPage), errors=(AWAY,))
async def list_circuits(hub: str) -> func.HttpResponse:
    """Show the circuit of every dependency."""
    items = await circuit_documents(hub)
    # A file holds the dependencies, so they are few: one page has them all.
    page = {"items": items, "next_cursor": None}
    return json_answer(page, headers={"ETag": etag_of(page, MOVING)})


async def circuit_documents(hub: str) -> list[dict[str, Any]]:
    """Return the document of every circuit, by name."""
    known = [dependency for _, dependency in sorted(dependencies().dependencies.items())]
    return await asyncio.gather(*(_view(hub, each) for each in known))


@routes.get("circuits/{dependency}", answers=shown(LimitedCircuit), errors=(MISSING, AWAY))
async def get_circuit(dependency: str, hub: str) -> func.HttpResponse:
    """Show the circuit of a dependency, and its limits."""
    found = _find(dependency)
    circuit, now = CircuitEntity(hub, found.name), circuit_time(hub, found.name)
    breaker = await circuit.read()
    needed = shared_limits_at(now, found.limits, breaker)
    limiter = await circuit.limiter() if needed.settings.is_on else Limiter()
    document = {
        **view_of(found.name, breaker, now, found.circuit),
        "limits": limits_view(found.limits, needed, limiter, clock.now()),
    }
    return json_answer(document, headers={"ETag": etag_of(document, MOVING)})


@routes.get("circuits/{dependency}/openings", answers=page(OpeningPage), errors=(MISSING, AWAY))
async def list_circuit_openings(dependency: str, hub: str) -> func.HttpResponse:
    """Show the last 50 openings of a circuit with their evidence, the latest first."""
    openings = await CircuitEntity(hub, _find(dependency).name).openings()
    return page_answer(openings.to_view(), None)


_CONTROL: Final[Declaration] = {
    "body": ManualControlBody,
    "answers": accepted(CircuitChange, "The change was sent to the circuit."),
    "errors": (MISSING, CONFLICT, AWAY),
}


@routes.post("circuits/{dependency}/open", **_CONTROL)
async def open_circuit(dependency: str, body: ManualControlBody, who: Caller, hub: str) -> func.HttpResponse:
    """Hold a circuit open: no attempt goes through."""
    return await _control(dependency, body, who, hub, ManualControl.OPEN)


@routes.post("circuits/{dependency}/close", **_CONTROL)
async def close_circuit(dependency: str, body: ManualControlBody, who: Caller, hub: str) -> func.HttpResponse:
    """Close a circuit; what waits for it goes in its turn."""
    return await _control(dependency, body, who, hub, ManualControl.CLOSE)


@routes.post("circuits/{dependency}/disable", **_CONTROL)
async def disable_circuit(
    dependency: str, body: ManualControlBody, who: Caller, hub: str
) -> func.HttpResponse:
    """Let everything through, whatever fails."""
    return await _control(dependency, body, who, hub, ManualControl.DISABLE)


@routes.post("circuits/{dependency}/reset", **_CONTROL)
async def reset_circuit(dependency: str, body: ManualControlBody, who: Caller, hub: str) -> func.HttpResponse:
    """Close a circuit and forget what it counted.

    Its audit of manual changes stays.
    """
    return await _control(dependency, body, who, hub, ManualControl.RESET)


async def _control(
    name: str, body: ManualControlBody, who: Caller, hub: str, control: ManualControl
) -> func.HttpResponse:
    dependency = _find(name)
    if not dependency.circuit.enabled:
        setting = "circuit.enabled = false in dependencies.toml"
        raise ConflictError(f"The circuit of {dependency.name} is switched off by {setting}.")
    await _check_epoch(hub, dependency, body.epoch)
    action = ManualAction(control, clock.now(), who.name, body.reason.strip(), body.for_seconds, body.epoch)
    message = ManualControlMessage(action)
    await CircuitEntity(hub, dependency.name).control(message)
    if control in _RELEASING:
        await start_release(hub, dependency.name, message)
    answer = {"dependency": dependency.name, "action": control.value, **body.model_dump(exclude={"epoch"})}
    return json_answer(answer, HTTPStatus.ACCEPTED)


async def _check_epoch(hub: str, dependency: Dependency, epoch: int | None) -> None:
    """Refuse a change of an epoch that is over; the circuit itself checks again when the change arrives.

    Raises:
        ConflictError: The circuit has moved on.
        TaskHubUnavailableError: It cannot be read.
    """
    if epoch is None:
        return
    current = (await _view(hub, dependency))["epoch"]
    if current != epoch:
        raise ConflictError(f"The circuit of {dependency.name} is in epoch {current} by now, not {epoch}.")


def _find(name: str) -> Dependency:
    return required(find_dependency(name), "dependency of this name")


async def _view(hub: str, dependency: Dependency) -> dict[str, Any]:
    breaker = await CircuitEntity(hub, dependency.name).read()
    # By the circuit's clock: this machine's may show a break that is over, or one that is not as over.
    now = circuit_time(hub, dependency.name)
    limits = limits_summary(dependency.limits, shared_limits_at(now, dependency.limits, breaker))
    return {**view_of(dependency.name, breaker, now, dependency.circuit), "limits": limits}
