"""Retry policies: strategies, jitter, presets, and what one operation may change of them.

Also the timeouts of an operation: connect, attempt and deadline must fit into each other and into the limit
of the host.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer

from durable_retry.base.json_forms import JsonShape
from durable_retry.base.text import seconds_text
from durable_retry.base.validation import PositiveSeconds, Problem, Seconds, Strict, refuse
from durable_retry.plugins import why_absent

type Strategy = Literal["exponential", "linear", "fixed", "schedule"]
type Jitter = Literal["full", "equal", "none"]
type PresetName = Literal["standard", "rate_limited", "critical", "webhook", "fixed", "none"]
type OnExhausted = Literal["dead_letter", "hold"]

UNLIMITED: Final = -1
"""`max_attempts` that means: until the deadline, for ever where there is none."""

HOLD_SECONDS: Final = 604_800.0
"""A week: whoever was away comes back within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy(JsonShape):
    """When and how often a failed attempt is repeated.

    Attributes:
        strategy: How the wait grows. `exponential`: initial * factor^(attempt-1); `linear`: initial *
            attempt; `fixed`: initial; `schedule`: the entries of `schedule_seconds`, the last one repeating.
        max_attempts: Attempts in all, the first included; at least 1, or -1 for "until the deadline, for
            ever where there is none".
        initial_seconds: The first wait, before jitter; 0 or more.
        factor: Growth of `exponential`; 1 or more.
        max_seconds: Cap of every computed wait, the first included. The entries of a schedule are not capped.
        schedule_seconds: Waits after attempt 1, 2, ... for strategy `schedule`.
        jitter: `full`: 0 to the wait; `equal`: half to the whole; `none`: exactly the wait. Drawn inside the
            cap.
        respect_retry_after: Whether the wait that the dependency asks for is a lower bound.
        max_retry_after_seconds: The longest wait that the dependency can ask for.
        on_exhausted: What becomes of an operation without attempts or time left: a `dead_letter`, or it is
            paused (`hold`). None is `dead_letter`.
        hold_seconds: How long it is paused before it is a dead letter. None is a week.
    """

    strategy: Strategy = "exponential"
    max_attempts: int = 5
    initial_seconds: float = 2.0
    factor: float = 2.0
    max_seconds: float = 60.0
    schedule_seconds: tuple[float, ...] = ()
    jitter: Jitter = "full"
    respect_retry_after: bool = True
    max_retry_after_seconds: float = 300.0
    on_exhausted: Annotated[
        OnExhausted | None, PlainSerializer(lambda word: word or "dead_letter", return_type=OnExhausted)
    ] = None
    hold_seconds: Annotated[
        float | None, PlainSerializer(lambda seconds: seconds or HOLD_SECONDS, return_type=float)
    ] = None

    def allows_another(self, attempts_made: int) -> bool:
        """Return whether another attempt may follow after so many counted ones."""
        return self.max_attempts == UNLIMITED or attempts_made < self.max_attempts

    def with_more_attempts(self, count: int) -> Self:
        """Return the policy with so many more attempts."""
        return (
            self if self.max_attempts == UNLIMITED else replace(self, max_attempts=self.max_attempts + count)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts(JsonShape):
    """The time limits of one operation, in seconds.

    Attributes:
        connect_seconds: To connect to the dependency; more than 0, at most `attempt_seconds`.
        attempt_seconds: One whole attempt.
        deadline_seconds: The whole operation with every wait; 0 means none.
    """

    connect_seconds: PositiveSeconds = 2.0
    attempt_seconds: PositiveSeconds = 10.0
    deadline_seconds: Seconds = 3600.0


@dataclass(frozen=True, slots=True)
class Preset:
    """A ready-made policy, and when to choose it."""

    policy: RetryPolicy
    reason: str


_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DAY: Final = 86_400.0

PRESETS: Final[Mapping[PresetName, Preset]] = {
    "standard": Preset(
        RetryPolicy(),
        "Most services: five attempts within about half a minute ride out a restart or a lost connection, "
        "and full jitter keeps callers that failed together from returning together.",
    ),
    "rate_limited": Preset(
        RetryPolicy(
            max_attempts=10,
            initial_seconds=5.0,
            max_seconds=300.0,
            jitter="equal",
            max_retry_after_seconds=_HOUR,
        ),
        "Services with quotas: waits start longer, never shrink below half, and a quota window of up to an "
        "hour is waited out in full.",
    ),
    "critical": Preset(
        RetryPolicy(max_attempts=15, initial_seconds=1.0, max_seconds=900.0, max_retry_after_seconds=_HOUR),
        "Work that must not be given up lightly: a quick first retry, then up to a quarter of an hour "
        "between attempts, so that an outage of an hour or more is outlasted (give it a deadline to match).",
    ),
    "webhook": Preset(
        RetryPolicy(
            strategy="schedule",
            max_attempts=10,
            max_seconds=_DAY,
            schedule_seconds=(
                5.0,
                5 * _MINUTE,
                30 * _MINUTE,
                2 * _HOUR,
                5 * _HOUR,
                10 * _HOUR,
                14 * _HOUR,
                20 * _HOUR,
                24 * _HOUR,
            ),
            jitter="none",
            max_retry_after_seconds=_DAY,
        ),
        "Deliveries to other people's servers: the schedule that the Standard Webhooks specification "
        "recommends, a little over three days, so that someone can come back from a weekend and repair the "
        "receiver (needs a deadline to match).",
    ),
    "fixed": Preset(
        RetryPolicy(strategy="fixed", initial_seconds=10.0, jitter="none"),
        "A steady, predictable interval: polling something slow, or a partner that asks for exactly that.",
    ),
    "none": Preset(
        RetryPolicy(max_attempts=1, initial_seconds=0.0, jitter="none"),
        "One attempt and no more: the caller decides what a failure means.",
    ),
}
"""Ready-made policies by name. `webhook` follows standardwebhooks.com, "Deliverability and reliability"."""


def policy_from(settings: Mapping[str, Any], base: RetryPolicy | None = None) -> RetryPolicy:
    """Return a policy: the preset that checked `settings` name, else `base`, with the other keys applied.

    Without a base it is the `standard` preset.
    """
    preset: PresetName | None = settings.get("preset")
    start = base or RetryPolicy()
    return replace(start if preset is None else _preset(preset, start), **_with_tuples(settings))


def _preset(name: PresetName, base: RetryPolicy) -> RetryPolicy:
    """Return a preset, which leaves to `base` what becomes of an exhausted operation."""
    policy = PRESETS[name].policy
    return replace(policy, on_exhausted=base.on_exhausted, hold_seconds=base.hold_seconds)


def policy_problems(policy: RetryPolicy) -> list[tuple[str, str]]:
    """List what makes a policy unusable as a whole, as (key, detail)."""
    problems = []
    if policy.strategy == "schedule" and not policy.schedule_seconds:
        problems.append(("schedule_seconds", 'must list at least one wait for strategy "schedule"'))
    if policy.on_exhausted == "hold" and (absent := why_absent("retry.on_exhausted")):
        problems.append(("on_exhausted", f"must not be hold, which {absent}"))
    return problems


def policy_warnings(policy: RetryPolicy, deadline_seconds: float) -> list[tuple[str, str]]:
    """List what is allowed and may not be meant, as (key, detail); a deadline of 0 means none."""
    if policy.max_attempts == UNLIMITED and deadline_seconds == 0:
        detail = (
            "-1 without a deadline (deadline_seconds is 0): an operation that never succeeds is retried for "
            "ever, unless a person cancels it"
        )
        return [("max_attempts", detail)]
    return []


def overridden(
    limits: RetryPolicy, settings: Mapping[str, Any], present: RetryPolicy | None = None
) -> RetryPolicy:
    """Return the policy of an operation that changes `settings`, for a dependency with the policy `limits`.

    Without a preset the present policy is changed key by key. A preset replaces it, lowered to what the
    dependency allows; so only keys that are written out can exceed a limit (see `override_problems`).

    Args:
        present: The operation's present policy; None for a new operation, which starts from `limits`.
    """
    preset: PresetName | None = settings.get("preset")
    base = present or limits
    if preset is not None:
        base = _policy_within_limits(_preset(preset, base), limits)
    return replace(base, **_with_tuples(settings))


def override_problems(limits: RetryPolicy, policy: RetryPolicy) -> list[Problem]:
    """List where an operation's policy is unusable or exceeds what its dependency allows.

    The dependency's policy limits the *load*, not the patience:

    1. no more attempts than the dependency's `max_attempts` (-1 only where the dependency has -1);
    2. the wait that the dependency asks for is respected: `respect_retry_after` cannot be switched off, and
       `max_retry_after_seconds` cannot be lowered;
    3. where attempts are unlimited, no wait may be capped below the dependency's own shortest one.

    Waits may otherwise be longer or shorter, since the number of attempts bounds the calls.
    """
    unusable = [Problem(f"/retry/{key}", detail) for key, detail in policy_problems(policy)]
    return [
        *unusable,
        *_attempt_problems(limits, policy),
        *_retry_after_problems(limits, policy),
        *_pace_problems(limits, policy),
    ]


def shortest_cap_seconds(policy: RetryPolicy) -> float:
    """Return the shortest wait before jitter that a policy can lead to."""
    if policy.strategy == "schedule":
        return min(policy.schedule_seconds, default=0.0)
    return min(policy.initial_seconds, policy.max_seconds)


def _policy_within_limits(policy: RetryPolicy, limits: RetryPolicy) -> RetryPolicy:
    attempts = policy.max_attempts
    if limits.max_attempts != UNLIMITED:
        attempts = min(attempts, limits.max_attempts)
    if not limits.respect_retry_after:
        return replace(policy, max_attempts=attempts)
    # A preset may cap Retry-After lower than the dependency does, which rule 2 of `override_problems`
    # forbids.
    most = max(policy.max_retry_after_seconds, limits.max_retry_after_seconds)
    return replace(policy, max_attempts=attempts, max_retry_after_seconds=most)


def _pace_problems(limits: RetryPolicy, policy: RetryPolicy) -> list[Problem]:
    floor = shortest_cap_seconds(limits)
    if policy.max_attempts != UNLIMITED or shortest_cap_seconds(policy) >= floor:
        return []
    detail = f"with unlimited attempts no wait may be shorter than {floor:g} s, the dependency's own"
    key = "schedule_seconds" if policy.strategy == "schedule" else "initial_seconds"
    return [Problem(f"/retry/{key}", detail)]


def _attempt_problems(limits: RetryPolicy, policy: RetryPolicy) -> list[Problem]:
    if limits.max_attempts == UNLIMITED:
        return []
    if policy.max_attempts == UNLIMITED or policy.max_attempts > limits.max_attempts:
        return [
            Problem(
                "/retry/max_attempts", f"may be at most {limits.max_attempts}, the limit of the dependency"
            )
        ]
    return []


def _retry_after_problems(limits: RetryPolicy, policy: RetryPolicy) -> Iterator[Problem]:
    if not limits.respect_retry_after:
        return
    if not policy.respect_retry_after:
        yield Problem("/retry/respect_retry_after", "cannot be switched off for this dependency")
    if policy.max_retry_after_seconds < limits.max_retry_after_seconds:
        detail = f"may not be below {limits.max_retry_after_seconds:g}, the dependency's own"
        yield Problem("/retry/max_retry_after_seconds", detail)


def _with_tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(RetryPolicy)}
    values = {key: value for key, value in settings.items() if key in names}
    # A frozen value needs a tuple in place of the JSON list.
    if "schedule_seconds" in values:
        values["schedule_seconds"] = tuple(values["schedule_seconds"])
    return values


MARGIN_SECONDS: Final = 10.0
"""What an invocation needs beside the call: starting the worker, the attempt marker, storing the result."""


def fitted_timeouts(written: Mapping[str, float], firm: Iterable[str]) -> Timeouts:
    """Return the timeouts with defaults filled in; those that are not firm shrink to fit the others.

    The keys of the dependency's own table are firm.
    """
    # A default must not contradict what the dependency's table says.
    full, firm_keys = Timeouts(**written), frozenset(firm)
    attempt = full.attempt_seconds
    if "attempt_seconds" not in firm_keys and full.deadline_seconds > 0:
        attempt = min(attempt, full.deadline_seconds)
    connect = full.connect_seconds
    if "connect_seconds" not in firm_keys:
        connect = min(connect, attempt)
    return replace(full, attempt_seconds=attempt, connect_seconds=connect)


def timeouts_problems(timeouts: Timeouts, function_timeout_seconds: float | None) -> list[tuple[str, str]]:
    """List the timeouts that do not fit each other or the function's (None without), as (key, detail)."""
    problems = []
    attempt, deadline = timeouts.attempt_seconds, timeouts.deadline_seconds
    if timeouts.connect_seconds > attempt:
        detail = (
            f"{seconds_text(timeouts.connect_seconds)} is more than attempt_seconds, {seconds_text(attempt)}"
        )
        problems.append(("connect_seconds", detail))
    if 0 < deadline < attempt:
        detail = f"{seconds_text(attempt)} is more than deadline_seconds, {seconds_text(deadline)}"
        problems.append(("attempt_seconds", detail))
    if function_timeout_seconds is not None and attempt + MARGIN_SECONDS > function_timeout_seconds:
        detail = (
            f"{seconds_text(attempt)} + {seconds_text(MARGIN_SECONDS)} to spare = "
            f"{seconds_text(attempt + MARGIN_SECONDS)}, more than host.json's functionTimeout of "
            f"{seconds_text(function_timeout_seconds)}"
        )
        problems.append(("attempt_seconds", detail))
    return problems


MAX_ATTEMPTS: Final = 1_000_000_000


def _checked_attempts(value: int) -> int:
    if value == 0:
        raise refuse("must be at least 1, or -1 for unlimited")
    return value


class RetryOverride(Strict):
    """The keys of a `retry` table, or of an operation's `retry`; only those in `written()` count.

    `rules.retry.policy.policy_from` and `rules.retry.policy.overridden` take what `written()` returns.

    Attributes:
        preset: The policy to start from; the other keys override it.
    """

    preset: PresetName = "standard"
    strategy: Strategy = "exponential"
    max_attempts: Annotated[int, Field(ge=-1, le=MAX_ATTEMPTS), AfterValidator(_checked_attempts)] = 5
    initial_seconds: Seconds = 2.0
    factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    max_seconds: Seconds = 60.0
    schedule_seconds: Annotated[list[Seconds], Field(max_length=1_000)] = Field(default_factory=list)
    jitter: Jitter = "full"
    respect_retry_after: bool = True
    max_retry_after_seconds: Seconds = 300.0
    on_exhausted: OnExhausted = "dead_letter"
    hold_seconds: PositiveSeconds = HOLD_SECONDS
