"""Limits of one dependency, kept by the whole fleet: attempts under way at once, and starts per second.

Half of a limit, rounded down, is shared out evenly among the workers: an attempt within its worker's share
starts without asking. The entity `call_limiter` (`limiter.py`) grants the rest. The operation's orchestration
calls it, at the cost of one entity call for each attempt beyond the shares. If a limit is too small to share,
the entity grants all of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import Field, create_model, field_validator

from durable_retry.base.answers import Answer
from durable_retry.base.json_forms import JsonShape, MsInstant
from durable_retry.base.validation import Label, Strict, table_of, validated
from durable_retry.features.limits.names import LIMITS
from durable_retry.rules.config.dependency import Bounds, Dependency

# No `type` statements: the OpenAPI document would have a schema of its own for each.
MostAtOnce = Annotated[int, Field(ge=0, le=100_000)]
MostPerSecond = Annotated[float, Field(ge=0, le=10_000)]
Weight = Annotated[float, Field(ge=0.001, le=1_000)]

LEAST_SHARED: Final = 16
"""A smaller `max_concurrency` is not shared out. A worker would have one or two slots, which stay free while
attempts wait elsewhere: three workers used four fifths of 2 at once, and use nearly all of 16."""


@dataclass(frozen=True, slots=True)
class KeyLimits(JsonShape):
    """`limits.per_key`: what bounds each limit key.

    Attributes:
        max_concurrency: Attempts under way at once; 0 means no limit.
        rate_per_second: Attempts started per second; 0 means no limit.
    """

    max_concurrency: MostAtOnce = 0
    rate_per_second: MostPerSecond = 0.0


@dataclass(frozen=True, slots=True)
class LimitSettings(JsonShape):
    """`[dependencies.<name>.limits]`.

    Attributes:
        max_concurrency: Attempts under way at once, fleet-wide; 0 means no limit.
        rate_per_second: Attempts started per second, fleet-wide; 0 means no limit.
        per_key: The same for each limit key; nothing is shared out among the workers then.
        weights: The weights of limit keys; 1 unless given.
    """

    max_concurrency: MostAtOnce = 0
    rate_per_second: MostPerSecond = 0.0
    per_key: KeyLimits | None = None
    weights: Mapping[Label, Weight] | None = None

    @property
    def is_on(self) -> bool:
        return self.max_concurrency > 0 or self.rate_per_second > 0 or self.per_key is not None

    @property
    def lends_slots(self) -> bool:
        """Whether attempts have slots, which they give back."""
        return self.max_concurrency > 0 or (self.per_key is not None and self.per_key.max_concurrency > 0)

    @property
    def is_shared(self) -> bool:
        """Whether half of the limit is shared out among the workers.

        Not with both limits: while attempts wait for the rate, the entity grants the whole rate, and could
        not grant the slots of the workers with it.
        """
        return self.per_key is None and not (self.max_concurrency > 0 and self.rate_per_second > 0)

    @property
    def shared_concurrency(self) -> int:
        """How many attempts at once are shared out among the workers."""
        return self.max_concurrency // 2 if self.is_shared and self.max_concurrency >= LEAST_SHARED else 0

    @property
    def shared_rate(self) -> int:
        """How many starts per second are shared out among the workers."""
        return int(self.rate_per_second) // 2 if self.is_shared else 0

    @property
    def is_rate_alone(self) -> bool:
        """Whether attempts wait for nothing but the rate of all."""
        return self.rate_per_second > 0 and self.max_concurrency == 0 and self.per_key is None

    @property
    def tells_turns(self) -> bool:
        """Whether attempts that wait for the rate may be told of a turn: no limit key has bounds."""
        return self.rate_per_second > 0 and self.per_key is None

    def has_rate(self, limit_key: str | None) -> bool:
        """Whether a rate bounds an attempt, that of all or that of its key."""
        of_key = 0.0 if limit_key is None or self.per_key is None else self.per_key.rate_per_second
        return self.rate_per_second > 0 or of_key > 0

    def of_key(self, limit_key: str | None) -> "LimitSettings":
        """Return the limits that an attempt with this key, or without one, is bound by."""
        if self.per_key is None and self.weights is None:
            return self
        if limit_key is None:
            common = replace(self, per_key=None, weights=None)
            return replace(common, per_key=self.per_key) if common.is_on else common
        weight = self.weight_of(limit_key)
        return replace(self, weights=None if weight is None else {limit_key: weight})

    def weight_of(self, limit_key: str | None) -> float | None:
        """Return the weight of a key; None is 1."""
        return None if limit_key is None or self.weights is None else self.weights.get(limit_key)


@dataclass(frozen=True, slots=True)
class ReadLimits(LimitSettings):
    """Limits as a worker read them. An attempt that waits sends the same ones with each request.

    Attributes:
        read_at: When the worker read them; None if that is not known.
    """

    read_at: MsInstant | None = None

    @classmethod
    def of(cls, limits: LimitSettings, now: datetime) -> Self:
        return cls(limits.max_concurrency, limits.rate_per_second, limits.per_key, limits.weights, now)

    def with_later(self, other: "ReadLimits | None") -> "ReadLimits":
        """Return these limits, or the bounds of others if those were read later."""
        if other is None or other.read_at is None or self.read_at is None or other.read_at <= self.read_at:
            return self
        per_key = None if self.per_key is None else other.per_key
        return replace(other, per_key=per_key, weights=self.weights)


def limits_from(table: Mapping[str, Any]) -> LimitSettings:
    """Return the limits that a valid table holds; what is empty or 0 bounds nothing."""
    per_key = KeyLimits(**(table.get("per_key") or {}))
    return LimitSettings(
        **{name: value for name, value in table.items() if name not in {"per_key", "weights"}},
        per_key=None if per_key == KeyLimits() else per_key,
        weights=table.get("weights") or None,
    )


class _Keys(Bounds):
    """What the feature adds to a dependency.

    Attributes:
        limits: How many attempts the whole fleet may make at once, and start per second.
    """

    @field_validator("limits", check_fields=False)
    @classmethod
    def _without_what_is_empty(cls, table: Strict) -> Strict:
        return validated(type(table), limits_from(table.model_dump()).to_json())

    @cached_property
    def settings(self) -> LimitSettings:
        return limits_from(self.model_dump()["limits"])

    @property
    def max_concurrency(self) -> int:
        return self.settings.max_concurrency

    @property
    def rate_per_second(self) -> float:
        return self.settings.rate_per_second

    @property
    def is_on(self) -> bool:
        return self.settings.is_on

    @property
    def has_shares(self) -> bool:
        return self.settings.shared_concurrency > 0 or self.settings.shared_rate > 0


_Table = table_of(LimitSettings)

LimitKeys: Final[type[_Keys]] = create_model(
    "LimitKeys", __base__=_Keys, __doc__=_Keys.__doc__, limits=(_Table, Field(default_factory=_Table))
)


def limits_of(dependency: Dependency) -> LimitSettings:
    """Return the limits of a dependency."""
    return dependency.keys_of(LIMITS, LimitKeys).settings


class LimitsSummary(Answer):
    """The limits of a dependency; 0 means no limit."""

    max_concurrency: int = Field(description="Attempts at once.")
    rate_per_second: float = Field(description="Starts per second.")
    shared_concurrency: int = Field(
        description="Of the attempts at once, what workers start of their own accord."
    )


def limits_summary(limits: LimitSettings) -> LimitsSummary:
    """Return what people see of limits without their use."""
    return LimitsSummary(
        max_concurrency=limits.max_concurrency,
        rate_per_second=limits.rate_per_second,
        shared_concurrency=limits.shared_concurrency,
    )
