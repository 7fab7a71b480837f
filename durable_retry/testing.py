"""A test kit for handlers: the app's own rules, without a host, a network, storage or waiting.

    async def test_a_busy_warehouse_is_asked_again() -> None:
        warehouse = FakeDependency(503, {"parcel": "p-1"})
        run = await run_handler("ship-order", {"number": 7}, warehouse)
        assert (run.status, run.waits) == ("succeeded", [2.0])

The handler runs as in the app, `Call` and all, over `httpx.MockTransport`. What follows each attempt is what
`engine.retry` decides; a wait moves the clock. There is no circuit and no retry budget, and nothing commits:
writes and events are shown.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, assert_never

import httpx

from durable_retry import clock
from durable_retry.engine.base.foreign import plain_json
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.base.validation import validated
from durable_retry.engine.config.dependencies_file import parse_config
from durable_retry.engine.operations.naming import ScopedKey, explicit_scope
from durable_retry.engine.operations.operation import OperationInput, operation_from
from durable_retry.engine.operations.request import OperationRequest
from durable_retry.engine.operations.steps import HEARTBEAT, RememberedStep, shown
from durable_retry.engine.retry.decide import MAX_OWN_FAILURES, DeadLetter, Done, Wait, overdue
from durable_retry.engine.retry.history import PastAttempt
from durable_retry.engine.retry.loop import RetryState, after
from durable_retry.handlers.registry import Function, Handler, find_handler, handler_of
from durable_retry.services.attempt.functions import Interruption
from durable_retry.services.attempt.handler import attempt_handler
from durable_retry.services.attempt.heartbeat import CURRENT
from durable_retry.services.attempt.http_client import close_clients, sending_over
from durable_retry.services.attempt.http_pool import PROGRESS, SendProgress
from durable_retry.services.attempt.http_request import Plan, start_clock
from durable_retry.settings.configuration import find_dependency, read_settings_by, using
from durable_retry.settings.placeholders import with_placeholders
from durable_retry.stores.operations.steps import StepRule

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""When every run begins."""


def use_placeholders(**settings: str) -> None:
    """Let `function_app.py` be imported without the app's environment; called first, as in `conftest.py`.

        use_placeholders()

    Args:
        settings: App settings that must not be placeholders. Those of the environment are no placeholders.
    """
    read_settings_by(lambda text: with_placeholders(text, {**settings, **os.environ}))


class FakeClock:
    """A clock that moves only when it is moved; `run_handler` moves it by each wait and each `Slow` answer.

    Args:
        start: What it shows at first.
    """

    def __init__(self, start: datetime = NOON) -> None:
        self._start, self._passed = start, 0.0

    def now(self) -> datetime:
        """Return the instant that it shows."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic_seconds(self) -> float:
        """Return the seconds since its start."""
        return self._passed

    def move(self, seconds: float) -> None:
        """Let seconds pass."""
        self._passed += seconds


class FakeStep:
    """A step's function with scripted results, given in turn; the last one is repeated.

        FakeStep(Transient("busy"), Charge(id="ch-1"))

    A result is what the function returns, or an exception to raise.

    Attributes:
        calls: The arguments of each call, oldest first.
    """

    def __init__(self, *results: Any) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._results = list(results)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give the next result."""
        self.calls.append((args, kwargs))
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, BaseException):
            raise BaseException.with_traceback(result, None)  # else it would grow with each call
        return result


class Crash(Interruption):
    """An answer at which the process dies: the request was received, and nothing of the attempt goes on."""


@dataclass(frozen=True, slots=True)
class Slow:
    """An answer that takes time.

        FakeDependency(Slow(30, {"parcel": "p-1"}))

    Attributes:
        seconds: How far the clock moves. The attempt is cut off at the end of its time, or when its function
            has reported nothing for `heartbeat_seconds`.
        answer: What comes then.
    """

    seconds: float
    answer: Any = 200


class FakeDependency:
    """A dependency with scripted answers, given in turn; the last one is repeated.

        FakeDependency(503, httpx.ConnectError("away"), {"id": "ch-1"})

    An answer is a status code, JSON for a 200, an `httpx.Response`, an exception to raise, `Slow(...)`,
    `Crash()`, or a function that takes the request and returns one of these.

    Attributes:
        requests: What it received, oldest first.
    """

    def __init__(self, *answers: Any) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers) or [200]
        self._time = FakeClock()

    def keys(self, header: str = "Idempotency-Key") -> list[str | None]:
        """Return the idempotency key of each request."""
        return [request.headers.get(header) for request in self.requests]

    def transport(self, time: FakeClock) -> httpx.AsyncBaseTransport:
        """Return what sends to it, by the clock of a run."""
        self._time = time
        return httpx.MockTransport(self._receive_request)

    async def _receive_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return self._response_to(request, answer)

    def _response_to(self, request: httpx.Request, answer: Any) -> httpx.Response:
        progress: SendProgress = request.extensions[PROGRESS]
        progress.sent = not isinstance(answer, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        match answer:
            case BaseException():
                raise BaseException.with_traceback(answer, None)  # else it would grow with each request
            case httpx.Response():
                return answer
            case Slow(seconds, later):
                self._let_pass(seconds, float(request.headers["X-Seconds-Left"]))
                return self._response_to(request, later)
            case int() if not isinstance(answer, bool):
                return httpx.Response(answer)
            case _ if callable(answer):
                return self._response_to(request, answer(request))
            case _:
                return httpx.Response(200, json=answer)

    def _let_pass(self, seconds: float, seconds_left: float) -> None:
        heartbeat = CURRENT.get()
        if heartbeat is not None and heartbeat.seconds_left <= min(seconds, seconds_left):
            self._time.move(heartbeat.seconds_left)
            raise heartbeat.missed()
        self._time.move(min(seconds, seconds_left))
        if seconds >= seconds_left:
            raise TimeoutError(f"not finished within {seconds_left:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRun:
    """What became of an operation.

    Attributes:
        status: `succeeded` or `dead_lettered`.
        result: The handler's value as JSON; None when it did not succeed.
        attempts: The latest 20, oldest first, as the status document shows them.
        attempt_count: How many there were.
        waits: Seconds of each wait between two attempts.
        reasons: Why each wait was that long.
        dead_letter: Its category, reason and detail; None when it succeeded.
        writes: JSON form of each `TableWrite` that would commit with the result.
        events: JSON forms of the events that would be sent.
        steps: As the status document shows them.
        progress: What the last heartbeat reported; None without one.
        seconds: From the beginning to the end, by the clock of the run.
    """

    status: OperationState
    result: Any
    attempts: tuple[PastAttempt, ...]
    attempt_count: int
    waits: list[float]
    reasons: list[tuple[str, ...]]
    dead_letter: DeadLetter | None
    writes: list[dict[str, Any]]
    events: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    progress: Any
    seconds: float


async def run_handler(
    handler: str | Function,
    given: Any,
    dependency: FakeDependency | Mapping[str, FakeDependency] | None = None,
    *,
    steps: Mapping[str, FakeStep] = MappingProxyType({}),
    time: FakeClock | None = None,
    key: str = "test-1",
    config: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
    **submitted: Any,
) -> HandlerRun:
    """Run a handler's operation to its end.

        run = await run_handler("ship-order", {"number": 7}, FakeDependency(503, {"parcel": "p-1"}))

    Args:
        handler: Its name, or the registered function.
        given: The operation's `input`: a model of the handler, or JSON.
        dependency: Answers the requests, or by the name of each dependency that a step names too; None
            answers 200 to all.
        steps: In place of the functions of steps, by their names.
        time: The clock; None means one that begins at `NOON`.
        key: The operation's.
        config: A `dependencies.toml`, its text or its path; None means the defaults.
        settings: App settings that it names, e.g. `{"PAYMENTS_TOKEN": "x"}`; the others are placeholders.
        submitted: Other fields of a submission: `correlation_id`, `deadline_seconds`, `retry`, `on_success`.

    Raises:
        LookupError: No such handler is registered.
        InvalidInputError: The submission or `config` would be refused.
    """
    known_handler = _required_handler(handler)
    time = time or FakeClock()
    fakes = dependency if isinstance(dependency, Mapping) else {known_handler.dependency: dependency}
    text = _config_text(config, {known_handler.dependency, *fakes})
    with ExitStack() as stack:
        stack.enter_context(using(parse_config(text, with_placeholders(text, settings or {}))))
        stack.enter_context(clock.reading(time.now, time.monotonic_seconds))
        stack.enter_context(
            sending_over(lambda called: (fakes.get(called.name) or FakeDependency()).transport(time))
        )
        operation = _operation_for_handler(known_handler, given, key, submitted)
        try:
            return await _Run(known_handler, operation, time, steps).to_the_end()
        finally:
            await close_clients()


def _config_text(config: str | Path | None, names: Iterable[str]) -> str:
    """Return the text of a `dependencies.toml`; without one, that of dependencies with the defaults."""
    if config is None:
        return "".join(f'[dependencies.{name}]\nbase_url = "http://{name}.test"\n' for name in names)
    return config.read_text(encoding="utf-8") if isinstance(config, Path) else config


def _required_handler(handler: str | Function) -> Handler:
    if not isinstance(handler, str):
        return handler_of(handler)
    if (named := find_handler(handler)) is None:
        raise LookupError(f"no handler {handler!r} is registered; import the module that declares it")
    return named


def _operation_for_handler(
    handler: Handler, given: Any, key: str, submitted: Mapping[str, Any]
) -> OperationInput:
    body = {"handler": handler.name, "input": plain_json(given), "key": key, **submitted}
    dependency = find_dependency(handler.dependency)
    if dependency is None:
        raise LookupError(f"the configuration has no dependency {handler.dependency!r}")
    handler.check_input(body["input"])
    request, limits = validated(OperationRequest, body), handler.limits_at(dependency)
    return operation_from(request, limits, ScopedKey(explicit_scope(""), key), source="test", now=clock.now())


@dataclass(slots=True)
class _Run:
    """One operation on its way: the loop of `orchestrators.operation`, without what needs a task hub."""

    handler: Handler
    operation: OperationInput
    time: FakeClock
    stand_ins: Mapping[str, FakeStep]
    state: RetryState = field(default_factory=RetryState)
    waits: list[Wait] = field(default_factory=list)
    steps: dict[str, RememberedStep] = field(default_factory=dict)

    async def to_the_end(self) -> HandlerRun:
        while True:
            history, due_at = self.state.history, self.state.due_at
            decision = (
                overdue(self.operation, history, due_at, clock.now()) or await self._attempt_until_decided()
            )
            match decision:
                case Wait():
                    self.waits.append(decision)
                    self.time.move(decision.delay_seconds)
                case Done():
                    return self._run_result(OperationState.SUCCEEDED, decision.result, None)
                case DeadLetter():
                    return self._run_result(OperationState.DEAD_LETTERED, {}, decision)
                case _ as never:
                    assert_never(never)

    async def _attempt_until_decided(self) -> Wait | Done | DeadLetter:
        dependency = find_dependency(self.operation.dependency)
        assert dependency is not None  # noqa: S101 - looked up before the run
        number = self.state.history.next_attempt
        for _ in range(MAX_OWN_FAILURES - 1):
            plan = Plan(self.operation, number, dependency, start_clock(self.operation))
            try:
                outcome = await attempt_handler(
                    plan, self.handler, self._change_step, stand_ins=self.stand_ins
                )
            except Crash:
                continue  # The task hub gives the attempt to another worker, under its number.
            self.state, action = after(self.operation, self.state, outcome, clock.now())
            assert isinstance(action, Wait | Done | DeadLetter)  # noqa: S101 - no circuit, so no probe
            return action
        raise RuntimeError(f"the handler's process died {MAX_OWN_FAILURES - 1} times in attempt {number}")

    async def _change_step(self, name: str, rule: StepRule) -> RememberedStep:
        self.steps[name] = rule(self.steps.get(name))
        return self.steps[name]

    def _run_result(
        self, status: OperationState, result: Mapping[str, Any], dead_letter: DeadLetter | None
    ) -> HandlerRun:
        history = self.state.history
        events = [*result.get("events", ()), *(dict(event) for event in self.operation.on_success)]
        return HandlerRun(
            status=status,
            result=result.get("value"),
            attempts=history.attempts,
            attempt_count=history.attempt_count,
            waits=[wait.delay_seconds for wait in self.waits],
            reasons=[wait.reasons for wait in self.waits],
            dead_letter=dead_letter,
            writes=list(result.get("writes", ())),
            events=events if dead_letter is None else [],
            steps=[shown(step, status).to_json() for name, step in self.steps.items() if name != HEARTBEAT],
            progress=json.loads(self.steps[HEARTBEAT].result or "null") if HEARTBEAT in self.steps else None,
            seconds=self.time.monotonic_seconds(),
        )
