"""The stays of an operation: its times at one dependency, each of which has a row among the markers.

free ──an attempt begins──> begun by it ──it has surely done nothing──> free
                               └──another execution begins──> begun by several, for ever
free ──the operation leaves──> left, for ever: no attempt begins any more
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from azure.core.exceptions import AzureError

from durable_retry.attempt.attempt import too_late
from durable_retry.attempt.http_request import Plan, start_clock
from durable_retry.attempt.markers import TABLE
from durable_retry.base.errors import ContendedError, StorageRefusedError
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category
from durable_retry.features.fallback.rules import route_of
from durable_retry.rules.operations.keys import Life, Met, OvertakenError
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.runtime import clock
from durable_retry.storage import tables

_FREE: Final = "free"
_LEFT: Final = "left"
_SEVERAL: Final = "several"

_FAILURES: Final = (AzureError, StorageRefusedError, ContendedError)


@dataclass(frozen=True, slots=True)
class _Stay:
    run: int  # of the life that it belongs to
    by: str  # the name of the execution that has begun an attempt in it, or one of the states


@dataclass(frozen=True, slots=True)
class Stay:
    """The present stay of an operation."""

    life: Life
    number: int

    @classmethod
    def of(cls, operation: OperationInput) -> "Stay":
        """Return that of an operation that has a part of this feature."""
        return cls(operation.life, route_of(operation).stay)

    async def begin(self, execution: str) -> bool:
        """Begin an attempt; return whether it may be made: the operation has not left.

        Raises:
            OvertakenError: A later life has begun.
        """

        def rule(known: _Stay | None) -> _Stay:
            mine = _Stay(self.life.run, execution)
            if known is None or self._is_over(known) or known.by == _FREE:
                return mine
            return known if known.by in {_LEFT, execution} else replace(known, by=_SEVERAL)

        # An insert is one request, a change two.
        with suppress(AzureError):
            row = self._keys | self._written(_Stay(self.life.run, execution))
            if await tables.insert_if_absent(TABLE, row):
                return True
        return (await self._changed(rule)).by != _LEFT

    async def end(self, execution: str) -> None:
        """End an attempt that has surely done nothing."""

        def rule(known: _Stay | None) -> _Stay:
            return known if known is not None and known.by != execution else _Stay(self.life.run, _FREE)

        await self._changed(rule)

    async def leave(self) -> bool:
        """Leave, unless an attempt has begun; return whether the operation has left, now or before."""

        def rule(known: _Stay | None) -> _Stay:
            is_begun = known is not None and not self._is_over(known) and known.by != _FREE
            return known if known is not None and is_begun else _Stay(self.life.run, _LEFT)

        return (await self._changed(rule)).by == _LEFT

    async def was_left(self) -> bool:
        """Whether the operation has left."""
        row = await tables.read(TABLE, *self._keys.values())
        return row is not None and not self._is_over(_read(row)) and _read(row).by == _LEFT

    def _is_over(self, known: _Stay) -> bool:
        met = self.life.meet(known.run)
        if met is Met.LATER:
            raise OvertakenError(known.run, self.life.run)
        return met is Met.EARLIER

    @property
    def _keys(self) -> tables.Row:
        return {"PartitionKey": self.life.owner, "RowKey": f"{0:010d}.stay{self.number}"}

    async def _changed(self, rule: Callable[[_Stay | None], _Stay]) -> _Stay:
        return await tables.change_row(TABLE, self._keys, rule, read=_read, write=self._written)

    @staticmethod
    def _written(stay: _Stay) -> tables.Row:
        return {"marked_at": to_rfc3339(clock.now()), "run": str(stay.run), "execution": stay.by}


def _read(row: tables.Row) -> _Stay:
    return _Stay(int(row["run"]), str(row["execution"]))


async def attempt_in_stay(make: Callable[[Plan], Awaitable[AttemptOutcome]], plan: Plan) -> AttemptOutcome:
    """Make an attempt of an operation, unless it has left; see `plugins.Plugin.attempt`."""
    operation = plan.operation
    at = operation.dependency if operation.submitted_to != operation.dependency else None
    if operation.acted_before:
        return replace(await make(plan), dependency=at)
    stay, execution = Stay.of(operation), uuid4().hex
    try:
        may_begin = await stay.begin(execution)
    except OvertakenError as error:
        return plan.outcome(category=Category.AMBIGUOUS, error=str(error), is_elsewhere=True, is_stopped=True)
    except _FAILURES as error:
        return _not_sent(plan, f"that it begins was not noted: {type(error).__name__}")
    if not may_begin:
        return _not_sent(plan, f"the operation has left {operation.dependency}")
    # The time that our own storage took must not count against the dependency.
    begun = replace(plan, limit=start_clock(operation))
    outcome = too_late(begun) or await make(begun)
    if not outcome.may_have_acted(operation.handler):
        with suppress(*_FAILURES):  # The operation then cannot leave this dependency.
            await stay.end(execution)
    return replace(outcome, dependency=at)


def _not_sent(plan: Plan, why: str) -> AttemptOutcome:
    return plan.outcome(category=Category.TRANSIENT, error=why, counted=False, is_elsewhere=True)
