"""Fallback: another dependency is asked while the circuit of the first is open.

    at the first ──its circuit is open, or the wait too long──> leave ──> attempt at the fallback ──> the end
         ^                                                                   └──its circuit is open, too
         └───────────────────────────── wait <── leave <─────────────────────────┘

An operation leaves a dependency only while that has surely done nothing for it. Every operation begins at the
first dependency: the probes of its circuit find out when it works again.

An activity may run twice, and late. So the time at one dependency is a stay, with a row of its own: an
attempt marks it as begun before it sends, and leaving marks it as left, unless an attempt has begun.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final

from pydantic import Field

from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import DeadLetterReason
from durable_retry.base.validation import Problem, Strict, checked, did_you_mean
from durable_retry.features.fallback.names import FALLBACK
from durable_retry.plugins import plugins
from durable_retry.rules.circuit.snapshot import RECHECK
from durable_retry.rules.config.dependency import NAME_OF_DEPENDENCY, NO_NAME, Dependency, Targets
from durable_retry.rules.operations.keys import key_or_hash
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.request import Members, OperationRequest, Part, members_by_feature
from durable_retry.rules.retry.constraints import latest_start
from durable_retry.rules.retry.decide import DeadLetter, Done, Wait
from durable_retry.rules.retry.history import History, PastWait, WaitKind
from durable_retry.rules.retry.policy import RetryPolicy, Timeouts


def _name_problem(name: str) -> str | None:
    return None if name == "" or NAME_OF_DEPENDENCY.fullmatch(name) else NO_NAME


# Not declared with `type`: such an alias would be a schema of its own in the OpenAPI document.
_Name = Annotated[str, checked(_name_problem)]


class FallbackKeys(Strict):
    """The keys that a dependency has of it.

    Attributes:
        fallback: Another dependency, which is asked while the circuit of this one is open.
    """

    fallback: _Name = ""


class FallbackMembers(Strict):
    """The members that a submission has of it."""

    fallback: _Name | None = Field(
        default=None,
        description="Another dependency, which is asked while the circuit of the first is open. "
        'Null takes that of the dependency, "" none.',
    )


def fallback_of(dependency: Dependency) -> str:
    """Return the name of a dependency's fallback; "" where it has none."""
    return dependency.keys_of(FALLBACK, FallbackKeys).fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(JsonShape):
    """How an operation is attempted at one dependency."""

    policy: RetryPolicy
    timeouts: Timeouts
    downstream_key: str | None = None  # as in `OperationInput`
    parts: Mapping[str, Mapping[str, Any]]  # of the features that have `Plugin.settle`


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(JsonShape):
    """The part of an operation: where it may go, and where it comes from."""

    to: str  # the fallback of the first dependency
    stay: int = 0  # the number of its present stay, from 0
    of: str | None = None  # the first dependency, while it is at another one
    home: Terms | None = None  # how it is attempted there; None while it is there


class _Fallback(Members):
    model = FallbackMembers

    def part_of(
        self, members: FallbackMembers | None, _target: str, dependency: Dependency, _now: datetime
    ) -> Part | None:
        own = None if members is None else members.fallback
        to = fallback_of(dependency) if own is None else own
        return Part(Route(to=to).to_json()) if to else None

    def part_of_replay(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        return part

    def unmet_keys(self, dependency: Dependency, targets: Targets) -> Iterator[Problem]:
        return _problems(fallback_of(dependency), dependency, targets, needs_url=bool(dependency.base_url))

    def unmet(
        self, members: FallbackMembers, request: OperationRequest, targets: Targets
    ) -> Iterator[Problem]:
        handler = targets.handlers.get(request.handler or "")
        name = request.dependency if handler is None else handler.dependency
        dependency = targets.find_dependency(name or "")
        return _problems(members.fallback or "", dependency, targets, needs_url=request.request is not None)


MEMBERS: Final = _Fallback()


def _problems(
    fallback: str, dependency: Dependency | None, targets: Targets, *, needs_url: bool
) -> Iterator[Problem]:
    """List what is wrong with a fallback of a dependency, None for one that is not known."""
    if not fallback:
        return
    following = targets.find_dependency(fallback)
    if following is None:
        guess = did_you_mean(fallback, list(targets.dependencies))
        yield Problem("/fallback", f"no dependency has the name {fallback}{guess}")
        return
    if needs_url and not following.base_url:
        yield Problem("/fallback", f"{following.name} has no base_url: it takes handlers, and no requests")
    if dependency is not None and following.masking != dependency.masking:
        # What people see of an operation must not depend on where it is.
        detail = f"{following.name} masks other parts than {dependency.name}: give both the same masking"
        yield Problem("/fallback", detail)
    passed = [] if dependency is None else [dependency.name]
    while following is not None and following.name not in passed:
        passed.append(following.name)
        following = targets.find_dependency(fallback_of(following))
    if following is not None:
        is_itself = len(passed) == 1
        circle = (
            "is the dependency itself" if is_itself else f"goes round: {', '.join(passed)}, {following.name}"
        )
        yield Problem("/fallback", circle)


def route_of(operation: OperationInput) -> Route:
    """Return where an operation that has a part of this feature may go."""
    return Route.from_json((operation.parts or {})[FALLBACK])


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveCall(JsonShape):
    """The input of the activity `leave_dependency`."""

    call: Mapping[str, Any]  # the JSON form of an `AttemptCall`: which operation
    is_late: bool  # whether it leaves although the circuit lets attempts through


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure(JsonShape):
    """The answer of the activity `leave_dependency`."""

    to: str | None = None  # where the operation goes on; None where it stays
    terms: Terms | None = None  # how it is attempted there; None at the first dependency, and where it was
    why: str | None = None  # why it stays, for a person; None where nothing is to be said
    until: datetime | None = None  # when it may be worth while to ask again; None where that is not known


_HELD: Final = frozenset({WaitKind.CIRCUIT, WaitKind.OWN_FAILURE})
_TOO_LATE: Final = frozenset({DeadLetterReason.DEADLINE_EXCEEDED, DeadLetterReason.CIRCUIT_OPEN})


def may_leave(operation: OperationInput, decision: Wait | DeadLetter, now: datetime) -> bool:
    """Whether an operation tries to leave, in place of what is decided; nothing may have been done for it.

    A failure of our own side counts: its stay may have been left already. Where a person holds the circuit
    and stops the deadlines, the operation waits.
    """
    is_away = route_of(operation).of is not None
    if isinstance(decision, Wait):
        held = _HELD | {WaitKind.THROTTLE} if is_away else _HELD
        return decision.kind in held and not decision.stops_deadline
    deadline_at = operation.deadline_at
    has_time = deadline_at is None or now < latest_start(deadline_at, operation.timeouts)
    return has_time and not is_away and decision.reason in _TOO_LATE


@cache
def _settling_features() -> frozenset[str]:
    return frozenset(plugin.name for plugin in plugins() if plugin.settle)


def _settling_parts(operation: OperationInput) -> dict[str, Mapping[str, Any]]:
    return {name: part for name, part in (operation.parts or {}).items() if name in _settling_features()}


def _key_at(dependency: str, key: str) -> str:
    """Return the key that is sent to a fallback: no step has a key like it (`OperationInput.step_key`)."""
    return key_or_hash(f"{key}~at~{dependency}")


def terms_at(
    operation: OperationInput, first: Dependency | None, dependency: Dependency, now: datetime
) -> Terms:
    """Return how an operation is attempted at a fallback.

    Args:
        first: The dependency that it leaves; None where that is not configured any more.
        dependency: With the policy and the time limit of the operation's handler.
    """
    target = f"dependency {dependency.name}" if operation.handler is None else f"handler {operation.handler}"
    parts = {
        name: members_by_feature()[name].part_of(None, target, dependency, now)
        for name in sorted(_settling_features() & dependency.of_features.keys())
    }
    first_features = frozenset() if first is None else first.of_features.keys()
    own = {name: part for name, part in _settling_parts(operation).items() if name not in first_features}
    return Terms(
        policy=dependency.retry,
        timeouts=replace(dependency.timeouts, deadline_seconds=operation.timeouts.deadline_seconds),
        downstream_key=_key_at(dependency.name, operation.sent_key),
        parts=own | {name: part.document for name, part in parts.items() if part is not None},
    )


def moved(operation: OperationInput, departure: Departure) -> OperationInput:
    """Return an operation as it goes on where a departure says, in a stay of its own."""
    route = route_of(operation)
    route = replace(route, stay=route.stay + 1)
    terms = departure.terms
    if terms is not None:
        home = Terms(
            policy=operation.policy,
            timeouts=operation.timeouts,
            downstream_key=operation.downstream_key,
            parts=_settling_parts(operation),
        )
        route = replace(route, of=operation.dependency, home=home)
    elif route.home is not None and departure.to == route.of:
        terms, route = _at_home(operation, route.home), replace(route, of=None, home=None)
    else:
        return replace(operation, parts={**(operation.parts or {}), FALLBACK: route.to_json()})
    parts = operation.parts or {}
    others = {name: part for name, part in parts.items() if name not in _settling_features()}
    return replace(
        operation,
        dependency=departure.to or operation.dependency,
        policy=terms.policy,
        timeouts=terms.timeouts,
        downstream_key=terms.downstream_key,
        parts={**others, **terms.parts, FALLBACK: route.to_json()},
    )


def _at_home(operation: OperationInput, home: Terms) -> Terms:
    """Return how an operation is attempted at the first dependency; one that was edited keeps its new key."""
    sent_before = _key_at(operation.dependency, home.downstream_key or operation.key)
    is_same = operation.downstream_key == sent_before
    return home if is_same else replace(home, downstream_key=operation.downstream_key)


def answered(operation: OperationInput, done: Done) -> Done:
    """Return a success with the fallback that answered, if one did."""
    is_away = route_of(operation).of is not None
    return Done({**done.result, "dependency": operation.dependency}) if is_away else done


def with_fallback(
    history: History, operation: OperationInput, decision: Wait | DeadLetter, to: str, now: datetime
) -> History:
    """Return the history whose next attempt goes to another dependency, in place of what was decided."""
    if isinstance(decision, Wait):
        history, why = replace(history, waits=_without_latest(history.waits, now)), decision.reasons
    else:
        why = (decision.detail,)
    return history.with_wait(
        PastWait(
            before_attempt=history.next_attempt,
            kind=WaitKind.FALLBACK,
            began_at=now,
            until=now,
            delay_reasons=(*why, f"{to} is asked in place of {operation.dependency}"),
        )
    )


def _without_latest(waits: tuple[PastWait, ...], now: datetime) -> tuple[PastWait, ...]:
    """Return the waits without the latest; one that stands for several in a row stays, for one less."""
    *before, latest = waits
    return (
        tuple(before) if latest.times == 1 else (*before, replace(latest, times=latest.times - 1, until=now))
    )


def kept_waiting(decision: Wait | DeadLetter, departure: Departure, now: datetime) -> Wait | DeadLetter:
    """Return what is decided of an operation that stays, with the reason for that."""
    if departure.why is None:
        return decision
    if isinstance(decision, DeadLetter):
        return replace(decision, detail=f"{decision.detail}; {departure.why}")
    until = decision.until
    if departure.until is not None:
        until = min(until, max(departure.until, now + RECHECK))
    seconds = (until - now).total_seconds()
    return replace(decision, until=until, delay_seconds=seconds, reasons=(*decision.reasons, departure.why))


def with_later_reason(history: History, wait: Wait) -> History:
    """Return the history with the end and the reasons of a new decision in its latest wait."""
    *before, latest = history.waits
    changed = replace(latest, until=wait.until, delay_reasons=wait.reasons)
    return replace(history, waits=(*before, changed))
