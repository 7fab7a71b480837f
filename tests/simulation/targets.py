"""The dependencies: services that flap, and write down everything that reaches them."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, override

import httpx

from durable_retry.attempt.http_pool import PROGRESS, SendProgress
from durable_retry.base.errors import MessageRefusedError
from durable_retry.rules.operations.operation import OperationInput
from tests.simulation.world import Execution, World, executing

_WORDY_CHARS: Final = 6_000
"""More of an answer than a history keeps: such a result is stored apart."""


class Mood(StrEnum):
    """How a dependency is for a while."""

    WELL = "well"
    REFUSING = "refusing"  # no connection
    ERRING = "erring"  # 500 before or after the effect
    HANGING = "hanging"  # no answer, before or after the effect
    THROTTLING = "throttling"  # 429, 503 or another 4xx, with Retry-After
    FAILING_FIRST = "failing first"  # 503 to the first attempt of each operation, without the effect
    REVOKED = "revoked"  # 401: the credential is no longer accepted
    SLOW = "slow"  # each answer takes six times as long
    STALLING = "stalling"  # 422 without the effect or 200 with it, of which the body never comes
    WORDED = "worded"  # 400, whose body says what 429 says, with or without Retry-After
    FLAPPING = "flapping"  # any of these, from call to call
    REJECTING = "rejecting"  # 422, without the effect


WORDED_STATUS: Final = 400
THROTTLED_WORD: Final = "ThrottlingException"
"""What the body of such an answer has at `/code`; a rule of the dependency's says what that is."""
_HINTED: Final = (429, 403, 503)
PAUSING: Final = (*_HINTED, WORDED_STATUS)
"""What a dependency answers with Retry-After that asks everybody for a wait."""
_NOT_NOW: Final = (*_HINTED, 404, 423)
"""The same, or what asks whoever called."""
REJECTED: Final = 422
_SLOWER: Final = 6
_NEVER_SECONDS: Final = 1_000
"""Longer than any attempt waits."""

_BUSY: Final = timedelta(seconds=30)

BANK: Final = "bank"
"""A dependency that does not deduplicate, acts late, and is asked whether it has acted."""
BANK_SHOWS_WITHIN: Final = 12.0
"""Seconds until its replica shows an effect: well before it has settled, as clocks differ."""
_ACTS_LATER: Final = (60.0, 200.0)
"""The same of what it does beyond that, which is more than it has promised."""

TENANTS: Final = "tenants"
"""A dependency that is well, and has a circuit for each limit key."""
REVOKED: Final = "customer-0"
"""The limit key whose credential it refuses for most of a storm."""
_REVOKED_PART: Final = 0.8

REPORTS: Final = "reports"
"""A dependency that accepts with 202, and works for a while on what it is asked for."""
_WORKS: Final = (0.0, 90.0)
_WORK_FAILS: Final = 0.1
MODEL: Final = "model"
"""A dependency with a fallback."""
SPARE: Final = "spare"
"""That fallback, which does not deduplicate."""

_TROUBLES: Final = (Mood.REFUSING, Mood.ERRING, Mood.HANGING, Mood.THROTTLING)


@dataclass
class Call:
    """One call as the dependency, or the network before it, saw it.

    Attributes:
        at: When it came.
        ended_at: When it was answered; None when it never was.
        execution: Of the activity that made it.
        skew: How far the clock of its worker is ahead.
        operation: On whose behalf; for a webhook that of its delivery.
        attempt: Its number, from 1.
        path: What was called.
        key: What it deduplicates on; "" for a dependency that does not.
        arrived: Whether any of it came through.
        effect: Whether it took effect, now or before, as far as the key shows.
        status: Of the answer; 0 when there was none.
        seen: What a success was answered with.
        retry_after_seconds: What was asked for; 0 when nothing was.
        shown_at: Since when who asks is told of its effect; None where nobody can ask.
    """

    at: datetime
    operation: OperationInput
    attempt: int
    execution: Execution
    skew: timedelta
    path: str
    key: str = ""
    arrived: bool = False
    effect: bool = False
    status: int = 0
    seen: int | None = None
    retry_after_seconds: int = 0
    ended_at: datetime | None = None
    shown_at: datetime | None = None


@dataclass(frozen=True)
class Job:
    """The work on what a key asked for.

    Attributes:
        ends_at: When it has ended.
        fails: Whether it fails.
    """

    ends_at: datetime
    fails: bool


@dataclass
class Target:
    """One dependency.

    Attributes:
        name: Its name.
        header: What it deduplicates on; "" when it does not.
        phases: Since when, in seconds, it is in which mood.
        calls: Everything that came, in order.
        busy_until: Until when a request of a key is under way that got no answer.
        effects: How often each key took effect; without deduplication each call is a key.
        is_polled: Whether it accepts with 202, and works for a while on what it is asked for.
        shows_within: Seconds until it shows an effect to who asks by GET, at most; 0: nobody asks.
        jobs: What it has accepted, by key.
        call_seconds: The least and the most that it takes to answer.
    """

    world: World
    name: str
    header: str
    phases: list[tuple[float, Mood]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    busy_until: dict[str, datetime] = field(default_factory=dict)
    is_polled: bool = False
    shows_within: float = 0.0
    jobs: dict[str, Job] = field(default_factory=dict)
    call_seconds: tuple[float, float] = (0.01, 0.4)

    def is_busy_with(self, call: Call) -> bool:
        """Whether an earlier request of the key is still under way, which its caller gave up."""
        return call.key in self.busy_until and self.world.now() < self.busy_until[call.key]

    def begin_storm(self) -> None:
        """Draw its moods until the storm ends."""
        begins, rng, ends = self.world.seconds, self.world.rng, self.world.storm_ends
        while begins < ends and self.name != TENANTS:
            mood = Mood.WELL if rng.random() < 0.6 else rng.choice([*_TROUBLES, Mood.FLAPPING])
            self.phases.append((begins, mood))
            begins += rng.uniform(20, 240)
        self.phases.append((ends if self.name != TENANTS else begins, Mood.WELL))

    def mood_for(self, call: Call) -> Mood:
        """Return how it is now, for this call."""
        mood = [mood for begins, mood in self.phases if begins <= self.world.seconds][-1]
        if mood is Mood.FAILING_FIRST and call.attempt > 1:
            return Mood.WELL
        if mood is not Mood.FLAPPING:
            return mood
        return self.world.rng.choice([Mood.WELL, Mood.WELL, Mood.WELL, *_TROUBLES])

    def has_revoked(self, operation: OperationInput) -> bool:
        """Whether it refuses the credential of an operation's limit key now."""
        restored_at = self.world.storm_ends - (1 - _REVOKED_PART) * self.world.scale.storm_seconds
        return self.name == TENANTS and operation.limit_key == REVOKED and self.world.seconds < restored_at

    def call_of(self, request: httpx.Request) -> Call:
        """Write a call down."""
        execution = executing.get()
        assert execution is not None, "only activities call"
        given = execution.given
        about = operation_in(self.world, given)
        assert about is not None, "it was read before the call"
        call = Call(self.world.now(), about, given["attempt"], execution, self.world.skew, request.url.path)
        call.key = request.headers.get(self.header, "") if self.header else ""
        self.calls.append(call)
        self.world.note("call", self.name, call.operation.operation_id, call.attempt)
        return call

    def take_effect(self, call: Call) -> None:
        """Do what the call asks for, once for each key."""
        call.effect = True
        if self.shows_within:
            rng, later = self.world.rng, self.name == BANK and self.world.happens(0.05)
            seconds = rng.uniform(*_ACTS_LATER) if later else rng.uniform(0, self.shows_within)
            call.shown_at = self.world.now() + timedelta(seconds=seconds)
        if self.is_polled and call.key not in self.jobs:
            ends_at = self.world.now() + timedelta(seconds=self.world.rng.uniform(*_WORKS))
            fails = self.name == REPORTS and self.world.happens(_WORK_FAILS)
            self.jobs[call.key] = Job(ends_at, fails)
        if not call.key or call.key not in self.effects:
            self.effects[call.key or f"call {len(self.calls)}"] += 1

    def effect_of(self, place: str) -> dict[str, Any] | None:
        """Return what its replica shows under a path; None where it shows no effect."""
        shown = (
            call
            for call in self.calls
            if call.shown_at is not None and call.shown_at <= self.world.now() and place_of(call) == place
        )
        return next(({"at": str(call.at)} for call in shown), None)


def place_of(call: Call) -> str:
    """Return where the effect of a call can be asked for."""
    operation = call.operation
    sent = operation.input if operation.request is None else operation.request["json"]
    return f"{operation.key}-{sent['life']}"


def operation_in(world: World, given: Mapping[str, Any]) -> OperationInput | None:
    """Return the operation of an attempt's input; None for a large one that nobody has read."""
    if "input_id" in given:
        written = world.read.get(given["input_id"])
        return None if written is None else OperationInput.from_json(written).without_commit()
    return OperationInput.from_json(given.get("operation") or given["delivery"]["operation"])


class _Stalling(httpx.AsyncByteStream):
    """A body that never comes."""

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.sleep(_NEVER_SECONDS)
        yield b""


@dataclass
class Network(httpx.AsyncBaseTransport):
    """Brings requests to their target and says whether they were sent, as the app's own transport does."""

    world: World
    targets: dict[str, Target]

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        target = self.targets[request.url.host]
        progress = request.extensions.get(PROGRESS) or SendProgress()
        progress.connecting = True
        await self.world.point()
        if target.shows_within and request.method == "GET":
            return await self._looked_up(target, request.url.path.rpartition("/")[2])
        if target.is_polled and request.method == "GET":
            return await self._polled(target, request.url.path.rpartition("/")[2])
        call = target.call_of(request)
        mood = target.mood_for(call)
        if mood is Mood.REFUSING:
            raise httpx.ConnectError("refused")
        progress.sent = True
        call.arrived = True
        return await self._answered(target, call, mood, request)

    async def _looked_up(self, target: Target, place: str) -> httpx.Response:
        answer = httpx.Response(httpx.codes.OK, json={"effect": target.effect_of(place)})
        return await self._unless_in_trouble(target, answer)

    async def _polled(self, target: Target, key: str) -> httpx.Response:
        job, answer = target.jobs[key], self._worded({"of": key})
        status = 202 if self.world.now() < job.ends_at else 422 if job.fails else 200
        return await self._unless_in_trouble(target, httpx.Response(status, json=answer))

    async def _unless_in_trouble(self, target: Target, answer: httpx.Response) -> httpx.Response:
        mood = [mood for begins, mood in target.phases if begins <= self.world.seconds][-1]
        if mood is Mood.REFUSING:
            raise httpx.ConnectError("refused")
        hangs = mood is Mood.HANGING
        await asyncio.sleep(_NEVER_SECONDS if hangs else self.world.rng.uniform(*target.call_seconds))
        if mood is Mood.REVOKED:
            return httpx.Response(httpx.codes.UNAUTHORIZED)
        is_in_trouble = mood in {Mood.ERRING, Mood.THROTTLING}
        return httpx.Response(httpx.codes.SERVICE_UNAVAILABLE) if is_in_trouble else answer

    def _worded(self, answer: dict[str, Any]) -> dict[str, Any]:
        is_wordy = self.world.happens(self.world.chances.wordy)
        return {"text": "x" * _WORDY_CHARS} | answer if is_wordy else answer

    async def _answered(
        self, target: Target, call: Call, mood: Mood, request: httpx.Request
    ) -> httpx.Response:
        rng = self.world.rng
        if mood is Mood.REVOKED or target.has_revoked(call.operation):
            await asyncio.sleep(rng.uniform(0.01, 0.4))
            call.ended_at, call.status = self.world.now(), httpx.codes.UNAUTHORIZED
            return httpx.Response(call.status)
        is_well = mood in {Mood.WELL, Mood.SLOW}
        is_busy = mood is Mood.WELL and target.is_busy_with(call)
        if mood is Mood.HANGING and call.key:
            target.busy_until[call.key] = self.world.now() + _BUSY
        takes_effect = (is_well and not is_busy) or (
            mood in {Mood.ERRING, Mood.HANGING, Mood.STALLING} and rng.random() < 0.5
        )
        is_mended = self.world.seconds > self.world.storm_ends / 2
        refusals = ("/refused",) if is_mended else ("/refused", "/mended")
        is_refusal = request.url.path.endswith(refusals)
        refused = mood is Mood.REJECTING or (mood is Mood.WELL and is_refusal)
        # In trouble it does even what it refuses later.
        if takes_effect and not refused:
            target.take_effect(call)
        await self.world.point()  # It has happened, and whoever asked may not live to hear of it.
        seconds = _NEVER_SECONDS if mood is Mood.HANGING else rng.uniform(*target.call_seconds)
        await asyncio.sleep(_SLOWER * seconds if mood is Mood.SLOW else seconds)
        if mood is Mood.STALLING:
            call.status = 0 if takes_effect else REJECTED
            return httpx.Response(call.status or httpx.codes.OK, stream=_Stalling())
        call.ended_at = self.world.now()
        if mood in {Mood.THROTTLING, Mood.WORDED}:
            return self._not_now(call, mood)
        if is_busy or mood is Mood.FAILING_FIRST:
            call.status = httpx.codes.CONFLICT if is_busy else httpx.codes.SERVICE_UNAVAILABLE
            return httpx.Response(call.status)
        if mood is Mood.ERRING and rng.random() < 0.3:
            raise httpx.ReadError("reset")
        call.status = REJECTED if refused else 500 if mood is Mood.ERRING else 200
        answer: dict[str, Any] = {"seen": len(target.calls)}
        if call.status == httpx.codes.OK and target.is_polled:
            call.status, answer = httpx.codes.ACCEPTED, {"job": f"/v1/jobs/{call.key}"}
        elif call.status == httpx.codes.OK:
            call.seen = answer["seen"]
        return httpx.Response(call.status, json=self._worded(answer))

    def _not_now(self, call: Call, mood: Mood) -> httpx.Response:
        """Return an answer that asks for a wait: by its status, or by the word in its body."""
        is_worded = mood is Mood.WORDED
        says_when = not is_worded or self.world.rng.random() < 0.5
        call.retry_after_seconds = self.world.rng.randint(1, 90) if says_when else 0
        headers = {"Retry-After": str(call.retry_after_seconds)} if says_when else {}
        if is_worded:
            call.status = WORDED_STATUS
            return httpx.Response(call.status, headers=headers, json={"code": THROTTLED_WORD})
        call.status = _NOT_NOW[call.retry_after_seconds % len(_NOT_NOW)]
        return httpx.Response(call.status, headers=headers)


REFUSING_QUEUE: Final = "refusing"
"""It refuses every message for good."""


@dataclass
class Queues:
    """The storage queues: what was sent to each."""

    world: World
    messages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    async def send_message(self, queue: str, text: str) -> None:
        """Stand in for `storage.queues.send_message`."""
        await self.world.point()
        if queue == REFUSING_QUEUE:
            raise MessageRefusedError(f"the queue {queue} refused it: Bad Request")
        fails = self.world.happens(self.world.chances.storage_fails * 10)
        if fails and self.world.happens(0.5):
            raise ConnectionError("the queue is away")
        self.messages.setdefault(queue, []).append(json.loads(text))
        await self.world.point()
        if fails:
            raise ConnectionError("the queue's answer was lost")
