"""What handlers are called with, and what they raise and return.

`TableWrite` and `Outcome` are checked where they are made, so a mistake shows in the handler's own
line and before anything takes effect.
"""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args, overload

from durable_retry.base.validation import InvalidInputError, Problem, pointer_of, validated
from durable_retry.rules.operations.request import FollowUp
from durable_retry.rules.retry.history import Conflict
from durable_retry.rules.retry.policy import RetryOverride

if TYPE_CHECKING:
    import httpx

MAX_WRITES: Final = 75
"""Writes of one outcome, at most."""

MAX_EFFECTS: Final = 78
"""Writes and events of one outcome, at most. A transaction takes 100 changes: the rest is for the events of
the submission, the result and the fence."""


class HandlerFailure(Exception):  # noqa: N818 - `classify` of a dependency may name it
    """The base of what a handler raises when it did not succeed.

    Raises:
        TypeError: Where it is made, if the message is no text.
    """

    def __init__(self, message: str = "") -> None:
        if not isinstance(message, str):
            raise TypeError(f"{type(self).__name__}: message must be text, not {type(message).__name__}")
        super().__init__(message)


class _Delayed(HandlerFailure):
    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = None if retry_after is None else _seconds(type(self).__name__, retry_after)


def _seconds(of: str, retry_after: object) -> float:
    if isinstance(retry_after, bool) or not isinstance(retry_after, Real):
        kind = type(retry_after).__name__
        raise TypeError(f"{of}: retry_after must be a number of seconds, not {kind}")
    seconds = float(retry_after)
    if not math.isfinite(seconds):
        raise InvalidInputError(
            [Problem("/retry_after", f"must be a finite number of seconds, not {seconds}")]
        )
    return seconds


class Transient(_Delayed):
    """The same call may succeed later.

        raise Transient("the warehouse is counting its stock", retry_after=30)

    Args:
        message: Shown in the attempt; never put a secret here.
        retry_after: Seconds in which not to try again, 0 if it is negative; None leaves it to the policy.

    Raises:
        TypeError: Where it is made, if an argument is of another kind.
        InvalidInputError: Where it is made, if `retry_after` is not finite.
    """


class Throttled(_Delayed):
    """The dependency wants fewer calls: all calls to it pause for `retry_after` seconds.

        raise Throttled("the quota of this minute is used up", retry_after=20)

    Args:
        message: Shown in the attempt; never put a secret here.
        retry_after: Seconds in which nobody calls it, 0 if it is negative; None leaves the next try to the
            policy.

    Raises:
        As `Transient`.
    """


class Rejected(HandlerFailure):
    """The same call will never succeed: the operation becomes a dead letter at once.

        raise Rejected("order 7 was cancelled by the customer")

    Args:
        message: Shown in the attempt; never put a secret here.
    """


type WriteMode = Literal["replace", "merge", "insert", "delete", "update"]

_MODES: Final = get_args(WriteMode.__value__)
_TABLE: Final = re.compile(r"(?!tables$)[a-z][a-z0-9]{2,62}", re.IGNORECASE | re.ASCII)
_KEY: Final = re.compile(r"[^/\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]*")
_KEY_CHARS: Final = 512
_PROPERTY: Final = re.compile(r"(?!(?:PartitionKey|RowKey|Timestamp)$)[^\W\d]\w{0,254}")
_MAX_PROPERTIES: Final = 252
# Azure Tables store text as UTF-16, 64 KiB for one property and 1 KiB for a key.
_TEXT_CHARS: Final = 32_768
_MAX_ROW_BYTES: Final = 2**20
_MAX_TRANSACTION_BYTES: Final = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """One change of a table, made in the same transaction as the result.

        TableWrite(table="Orders", partition_key="ada", row_key="h1", values={"amount": 3})

    Attributes:
        table: Name of an Azure table of the app's storage account.
        partition_key: All writes of one outcome share table and partition: a transaction cannot span them.
        row_key: The row.
        values: Its properties: text of at most 32,768 characters, numbers and booleans; instants as text.
        mode: `replace` and `merge` make the row when it is missing; `insert` rejects the operation when it
            exists. `update` sets `values` in a row that exists and is as `etag` and `only_if` say. Where it
            is not, nothing is committed, and the handler runs again, see `Call.commit_conflict`.
        etag: The version of the row that an `update` changes; None for any.
        only_if: Values that the row of an `update` has before; None stands for a property that is missing.

    Raises:
        InvalidInputError: Where it is made, if storage would refuse it: each field with its cause.
    """

    table: str
    partition_key: str
    row_key: str
    values: Mapping[str, Any] = field(default_factory=dict)
    mode: WriteMode = "replace"
    etag: str | None = None
    only_if: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [*self._name_problems(), *self._value_problems(), *self._condition_problems()]
        if problems:
            raise InvalidInputError(problems)

    def _name_problems(self) -> Iterator[Problem]:
        if not (isinstance(self.table, str) and _TABLE.fullmatch(self.table)):
            detail = f"{self.table!r} is no name of a table: 3 to 63 letters and digits, and not `tables`"
            yield Problem("/table", detail)
        for name, key in (("partition_key", self.partition_key), ("row_key", self.row_key)):
            if not (isinstance(key, str) and _KEY.fullmatch(key) and _utf16_bytes(key) <= 2 * _KEY_CHARS):
                yield Problem(f"/{name}", f"{key!r:.80} is no key: at most 512 characters without / \\ # ?")
        if self.mode not in _MODES:
            yield Problem("/mode", f"{self.mode!r} is none of {', '.join(_MODES)}")

    def _value_problems(self) -> Iterator[Problem]:
        if len(self.values) > _MAX_PROPERTIES:
            yield Problem("/values", f"{len(self.values)} properties; a row takes {_MAX_PROPERTIES}")
        for name, value in self.values.items():
            place = pointer_of("values", str(name))
            if not (isinstance(name, str) and _PROPERTY.fullmatch(name)):
                yield Problem(place, f"{name!r:.80} is no name of a property")
            if not _is_storable(value):
                yield Problem(place, f"a {type(value).__name__} that a row cannot keep: {value!r:.80}")
        size = sum(
            _utf16_bytes(text) for text in (*self.values, *self.values.values()) if isinstance(text, str)
        )
        if size > _MAX_ROW_BYTES:
            yield Problem("/values", f"{size} bytes of text; a row takes {_MAX_ROW_BYTES}")

    def _condition_problems(self) -> Iterator[Problem]:
        for name in ("etag", "only_if"):
            if getattr(self, name) and self.mode != "update":
                yield Problem(f"/{name}", f"is for the mode update, not {self.mode}")
        for name, value in self.only_if.items():
            if value is not None and not _is_storable(value):
                detail = f"a {type(value).__name__} that no row has: {value!r:.80}"
                yield Problem(pointer_of("only_if", str(name)), detail)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as the commit takes it."""
        conditions = {"etag": self.etag, "only_if": dict(self.only_if)}
        return {
            "table": self.table,
            "partition_key": self.partition_key,
            "row_key": self.row_key,
            "values": dict(self.values),
            "mode": self.mode,
            **{name: condition for name, condition in conditions.items() if condition},
        }


def _utf16_bytes(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass"))


def _is_storable(value: object) -> bool:
    match value:
        case bool():
            return True
        case str():
            return _utf16_bytes(value) <= 2 * _TEXT_CHARS
        case int():
            return -(2**63) <= value < 2**63
        case float():
            return math.isfinite(value)
        case _:
            return False


@dataclass(frozen=True, slots=True)
class Outcome[T = Any]:
    """A success with side effects that commit together.

        Outcome({"id": 7}, writes=[TableWrite(...)], events=[Event.to_queue("orders", "placed")])

    Attributes:
        value: Any JSON; becomes `result.value`. Models and dataclasses become JSON.
        writes: Table writes, all in one table and partition, each row once.
        events: Follow-up messages.

    Raises:
        InvalidInputError: Where it is made, if it cannot be one transaction.
    """

    value: T = cast("T", None)  # noqa: RUF009 - a cast calls nothing
    writes: Iterable[TableWrite] = ()
    events: Iterable[FollowUp] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "writes", tuple(self.writes))
        object.__setattr__(self, "events", tuple(self.events))
        problems = [
            *_kind_problems("writes", self.writes, TableWrite, "TableWrite"),
            *_kind_problems("events", self.events, FollowUp, "Event"),
        ]
        if problems or (problems := list(_transaction_problems(self))):
            raise InvalidInputError(problems)


def _kind_problems(name: str, items: Iterable[object], kind: type, made_by: str) -> Iterator[Problem]:
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            detail = f"must be made by {made_by}, not {type(item).__name__}"
            yield Problem(pointer_of(name, index), detail)


def _transaction_problems(outcome: Outcome[Any]) -> Iterator[Problem]:
    writes, events = tuple(outcome.writes), tuple(outcome.events)
    if len(writes) > MAX_WRITES:
        yield Problem("/writes", f"{len(writes)} writes; one transaction takes {MAX_WRITES}")
    elif len(writes) + len(events) > MAX_EFFECTS:
        detail = f"{len(events)} events beside {len(writes)} writes; one transaction takes {MAX_EFFECTS}"
        yield Problem("/events", detail)
    if len({(write.table, write.partition_key) for write in writes}) > 1:
        yield Problem("/writes", "must all share one table and partition_key: a transaction cannot span them")
    if writes and (size := len(json.dumps([write.to_json() for write in writes]))) > _MAX_TRANSACTION_BYTES:
        yield Problem("/writes", f"{size} bytes of JSON; one transaction takes {_MAX_TRANSACTION_BYTES}")
    rows = [(write.table, write.partition_key, write.row_key) for write in writes]
    for index, row in enumerate(rows):
        if row in rows[:index]:
            yield Problem(pointer_of("writes", index), f"is a second write of the row {row[2]!r}")


def _needs_heartbeat_seconds(_progress: Any) -> None:
    detail = "is for functions with heartbeat_seconds: @durable_retry.operation(..., heartbeat_seconds=30)"
    raise InvalidInputError([Problem("/heartbeat", detail)])


_STEP_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a handler, see `Call.step`."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dependency: str | None
    retry: RetryOverride | None
    repeatable: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One attempt, as a handler gets it.

        answer = await call.client.post("/parcels", json={"order": order.number})

    Attributes:
        key: The idempotency key, the same on every attempt and every replay.
        attempt: Number of this attempt, from 1.
        max_attempts: How many there are at most, as `max_attempts` of its policy: -1 until the deadline.
        is_last: Whether no attempt follows this one by its policy, however it fails.
        deadline_at: When the operation is given up; None when never.
        correlation_id: The caller's name for the wider piece of work; None when not given.
        commit_conflict: Why an earlier attempt, which succeeded, was not committed: the row that was not as
            its `update` wanted it. None where all rows were.
        async_client: What `client` returns.
        time_left: Returns `seconds_left`.
        run_step: Carries out `step`.
        progress: What an earlier attempt reported last by `heartbeat`; None when none did.
        report_progress: Carries out `heartbeat`.
    """

    key: str
    attempt: int
    max_attempts: int
    is_last: bool
    deadline_at: datetime | None
    correlation_id: str | None
    async_client: "httpx.AsyncClient"
    time_left: Callable[[], float]
    run_step: Callable[[Step], Awaitable[Any]]
    commit_conflict: Conflict | None = None
    progress: Any = None
    report_progress: Callable[[Any], None] = _needs_heartbeat_seconds

    @property
    def client(self) -> "httpx.AsyncClient":
        """A client of the handler's dependency: its base URL, headers, auth, timeouts and pool.

        Each request carries the key in the dependency's idempotency header, unless it sets that header
        itself.

        Raises:
            TypeError: The function is a `def`, which runs in a thread and could not await it.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise TypeError(
                "call.client is async, and this function is a `def`: write `async def` and "
                "`await call.client...`, or use a client of your own"
            ) from None
        return self.async_client

    @property
    def seconds_left(self) -> float:
        """Seconds until this attempt is cut off: of the attempt's timeout, or of the deadline."""
        return self.time_left()

    def heartbeat(self, progress: Any = None) -> None:
        """Keep the attempt alive for another `heartbeat_seconds`, and report how far it is.

            for page in range(call.progress or 0, pages):
                copy(page)
                call.heartbeat(page + 1)

        It returns at once and may be called in any thread, as often as is convenient: a report is stored at
        most every ten seconds, and twice in `heartbeat_seconds`, and when the attempt fails.

        Args:
            progress: At most 16 KiB of JSON. The status shows it, and the next attempt has it as
                `call.progress`.

        Raises:
            InvalidInputError: It cannot be stored, or the function has no `heartbeat_seconds`.
            TimeoutError: The attempt is over, and another one may run.
        """
        self.report_progress(progress)

    @overload
    async def step[T](
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        dependency: str | None = None,
        retry: Mapping[str, Any] | None = None,
        repeatable: bool | None = None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step[T](
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        dependency: str | None = None,
        retry: Mapping[str, Any] | None = None,
        repeatable: bool | None = None,
        **kwargs: Any,
    ) -> T: ...
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        dependency: str | None = None,
        retry: Mapping[str, Any] | None = None,
        repeatable: bool | None = None,
        **kwargs: Any,
    ) -> Awaitable[Any]:
        """Run a step once, and remember its result: a later attempt of the operation gets it from storage.

            charge = await call.step("charge", charge_card, order)

            def charge_card(order: Order, call: Call) -> Charge: ...

        Args:
            name: Unique in the handler: 1 to 64 letters, digits, `-` and `_`.
            function: Sync or async. Its result, at most 64 KiB of JSON, comes back as what it is annotated to
                return. A parameter that is annotated `Call` gets one whose key is the step's own.
            args: For `function`; not stored.
            kwargs: As `args`.
            dependency: The one that the step calls, with its client, circuit, limits and policy; None means
                the handler's. While it admits no call, the operation waits and counts no attempt.
            retry: Changes to the operation's policy for this step, in the words of a `retry` table: its
                failures then use up its own attempts, and the operation waits as it says. None leaves them to
                the operation's policy.
            repeatable: Whether to run it again when an execution of it died and nobody knows whether it took
                effect; if not, the operation is a dead letter then. None means: if the dependency
                deduplicates.

        Raises:
            InvalidInputError: The name, the policy or the result cannot be used.
            Exception: What `function` raised.
        """
        if not (isinstance(name, str) and _STEP_NAME.fullmatch(name)):
            detail = f"{name!r:.80} is no name: 1 to 64 letters, digits, - and _"
            raise InvalidInputError([Problem("/step", detail)])
        policy = None if retry is None else validated(RetryOverride, dict(retry))
        return self.run_step(Step(name, function, args, kwargs, dependency, policy, repeatable))
