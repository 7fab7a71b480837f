"""A handler's operation, run to its end by the rules of `rules.retry`; a wait moves the clock."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, assert_never

import httpx

from durable_retry.attempt.attempt import outcome_of_marked
from durable_retry.attempt.http_client import close_clients, sending_over
from durable_retry.attempt.http_request import Plan, attempt_request, needs_marker, start_clock
from durable_retry.attempt.markers import Marker
from durable_retry.base.foreign import plain_json
from durable_retry.base.names import OperationState
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.handlers.handler import attempt_handler, sends_once
from durable_retry.features.handlers.records import StepRule
from durable_retry.features.handlers.registry import Function, Handler, handler_of
from durable_retry.features.handlers.rules.steps import HEARTBEAT, RememberedStep, shown
from durable_retry.features.handlers.testing.fakes import (
    Crash,
    FakeClock,
    FakeDependency,
    FakeStep,
    answering_own_clients,
)
from durable_retry.features.handlers.testing.placeholders import with_placeholders
from durable_retry.plugins import features_of
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.operations.completion import RECOVERED_ATTEMPTS
from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, ScopedKey
from durable_retry.rules.operations.operation import OperationInput, excess_problems, operation_from
from durable_retry.rules.operations.request import parse_operation
from durable_retry.rules.retry.decide import MAX_OWN_FAILURES, DeadLetter, Done, Wait, overdue
from durable_retry.rules.retry.history import AttemptOutcome, PastAttempt
from durable_retry.rules.retry.loop import RetryState, after
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import dependencies, find_dependency, using


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRun:
    """What became of an operation.

    Attributes:
        key: Its idempotency key.
        status: `succeeded` or `dead_lettered`.
        result: The handler's value as JSON, or the answer to a request as the status document shows it; None
            when it did not succeed.
        attempts: The latest 20, oldest first, as the status document shows them.
        attempt_count: How many there were.
        waits: Seconds of each wait between two attempts, or before a lookup.
        reasons: Why each wait was that long.
        dead_letter: Its category, reason and detail; None when it succeeded.
        writes: JSON form of each `TableWrite` that would commit with the result.
        events: JSON forms of the events that would be sent.
        steps: As the status document shows them.
        progress: What the last heartbeat reported; None without one.
        seconds: From the beginning to the end, by the clock of the run.
    """

    key: str
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
        dependency: Answers the requests of `call.client` and of the function's own httpx clients; or by the
            name of each dependency, where steps or URLs lead to others, too. None answers 200 to all.
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
    known_handler = handler_of(handler)
    time = time or FakeClock()
    fakes = dependency if isinstance(dependency, Mapping) else {known_handler.dependency: dependency}
    async with world(time, fakes, {known_handler.dependency}, config, settings) as fake_of:
        operation = _operation_for_handler(known_handler, given, key, submitted)
        run = await Play(operation, time, steps, fake_of).to_the_end()
    warn_of_unasked(fakes, steps, [run])
    return run


def warn_of_unasked(
    fakes: Mapping[str, FakeDependency | None], steps: Mapping[str, FakeStep], runs: Iterable[HandlerRun]
) -> None:
    """Warn of each fake that has answers and was never asked, although all succeeded."""
    if all(run.status is OperationState.SUCCEEDED for run in runs):
        for name, fake in [*fakes.items(), *steps.items()]:
            if fake is not None:
                fake.warn_if_never_asked(name)


_ONE_RUN: Final = Lock()
"""Held by the run that has the process's clock and dependencies."""


@asynccontextmanager
async def world(
    time: FakeClock,
    fakes: Mapping[str, FakeDependency | None],
    needed: Iterable[str],
    config: str | Path | None,
    settings: Mapping[str, str] | None,
) -> AsyncIterator[Callable[[str], FakeDependency]]:
    """Use a test's clock, dependencies and settings inside the block; gives the function that finds a fake.

    Args:
        needed: Names of dependencies beside those of the fakes.

    Raises:
        RuntimeError: Another run is under way.
    """
    if not _ONE_RUN.acquire(blocking=False):
        raise RuntimeError("another run has the clock of this process: await one after the other")

    def fake_of(name: str) -> FakeDependency:
        return fakes.get(name) or FakeDependency()

    with ExitStack() as stack:
        stack.callback(_ONE_RUN.release)
        text = _config_text(config, {*needed, *fakes})
        stack.enter_context(using(parse_config(text, with_placeholders(text, settings or {}))))
        stack.enter_context(clock.reading(time.now, time.monotonic_seconds))
        stack.enter_context(sending_over(lambda called: fake_of(called.name).transport(time)))
        try:
            yield fake_of
        finally:
            await close_clients()


def _config_text(config: str | Path | None, names: Iterable[str]) -> str:
    """Return the text of a `dependencies.toml`; without one, that of dependencies with the defaults."""
    if config is None:
        return "".join(f'[dependencies.{name}]\nbase_url = "http://{name}.test"\n' for name in names)
    return config.read_text(encoding="utf-8") if isinstance(config, Path) else config


def _operation_for_handler(
    handler: Handler, given: Any, key: str, submitted: Mapping[str, Any]
) -> OperationInput:
    body = {"handler": handler.name, "input": plain_json(given), "key": key, **submitted}
    dependency = find_dependency(handler.dependency)
    if dependency is None:
        raise LookupError(f"the configuration has no dependency {handler.dependency!r}")
    handler.check_input(body["input"])
    request, limits = parse_operation(body), handler.limits_at(dependency)
    if problems := [*excess_problems(request, limits, clock.now())]:
        raise InvalidInputError(problems)
    return operation_from(request, limits, ScopedKey(EXPLICIT_SCOPE, key), source="test", now=clock.now())


@dataclass(slots=True)
class Play:
    """The run of one operation: the loop of `orchestrators.operation`, without what needs a task hub."""

    operation: OperationInput
    time: FakeClock
    stand_ins: Mapping[str, FakeStep]
    fake_of: Callable[[str], FakeDependency]
    functions: Mapping[str, Function] = MappingProxyType({})  # in place of those of handlers
    state: RetryState = field(default_factory=RetryState)
    waits: list[Wait] = field(default_factory=list)
    steps: dict[str, RememberedStep] = field(default_factory=dict)
    marked: set[int] = field(default_factory=set)  # attempts that sent what must not be sent twice

    async def to_the_end(self) -> HandlerRun:
        """Attempt, decide and wait until it has ended."""
        while True:
            history, due_at = self.state.history, self.state.due_at
            decision = (
                overdue(self.operation, history, due_at, clock.now()) or await self._attempt_until_decided()
            )
            match decision:
                case Wait():
                    self.wait(decision)
                case Done():
                    return self._run_result(OperationState.SUCCEEDED, decision.result, None)
                case DeadLetter():
                    return self._run_result(OperationState.DEAD_LETTERED, {}, decision)
                case _ as never:
                    assert_never(never)

    def wait(self, wait: Wait) -> None:
        """Let a wait pass."""
        self.waits.append(wait)
        self.time.move(wait.delay_seconds)

    async def _attempt_until_decided(self) -> Wait | Done | DeadLetter:
        dependency = find_dependency(self.operation.dependency)
        assert dependency is not None  # noqa: S101 - looked up before the run
        number = self.state.history.next_attempt
        for _ in range(MAX_OWN_FAILURES - 1):
            plan = Plan(self.operation, number, dependency, start_clock(self.operation))
            try:
                with answering_own_clients(partial(self._answer_own_client, plan)):
                    outcome = await self._settled(await self._attempt(plan))
            except Crash:
                continue  # The task hub gives the attempt to another worker, under its number.
            if not outcome.counted:
                self.marked.discard(number)
            self.state, action = after(self.operation, self.state, outcome, clock.now())
            assert isinstance(action, Wait | Done | DeadLetter)  # noqa: S101 - no circuit, so no probe
            return action
        raise RuntimeError(f"the process died {MAX_OWN_FAILURES - 1} times in attempt {number}")

    async def _attempt(self, plan: Plan) -> AttemptOutcome:
        if plan.number in self.marked:
            return outcome_of_marked(plan, Marker(plan.operation.run, plan.operation.owner))
        mark = partial(self._mark, plan.number)
        if self.operation.handler is None:
            if needs_marker(plan):
                await mark()
            return await attempt_request(plan)
        handler = handler_of(self.operation.handler)
        if (stand_in := self.functions.get(handler.name)) is not None:
            # With the signature of the function that it replaces.
            handler = replace(handler, function=wraps(handler.function)(partial(stand_in)))
        if handler.repeatable is False:
            await mark()
        return await attempt_handler(
            plan,
            handler,
            self._change_step,
            stand_ins=self.stand_ins,
            mark=mark if sends_once(plan, handler) else None,
        )

    async def _settled(self, outcome: AttemptOutcome) -> AttemptOutcome:
        for feature in features_of(self.operation.parts):
            if feature.play:
                outcome = await imported(feature.play)(self, outcome)
        return outcome

    def _answer_own_client(self, plan: Plan, request: httpx.Request) -> httpx.Response:
        """Answer by the fake of the dependency at the request's host, or else by that of the handler's."""
        known = (dependency for dependency in dependencies().dependencies.values() if dependency.base_url)
        hosts = {httpx.URL(dependency.base_url).host: dependency.name for dependency in known}
        fake = self.fake_of(hosts.get(request.url.host, plan.dependency.name))
        return fake.receive(request, self.time, plan.limit.seconds_left)

    async def _mark(self, attempt: int) -> None:
        self.marked.add(attempt)

    async def _change_step(self, name: str, rule: StepRule) -> RememberedStep:
        self.steps[name] = rule(self.steps.get(name))
        return self.steps[name]

    def _run_result(
        self, status: OperationState, result: Mapping[str, Any], dead_letter: DeadLetter | None
    ) -> HandlerRun:
        history = self.state.history
        parts = (self.operation.parts or {}).values()
        names = ["on_success", *(["on_recovered"] if history.attempt_count >= RECOVERED_ATTEMPTS else [])]
        names = names if dead_letter is None else ["on_failure"]
        events = [
            *result.get("events", ()),
            *(event for part in parts for name in names for event in part.get(name, ())),
        ]
        return HandlerRun(
            key=self.operation.key,
            status=status,
            result=result.get("value") if self.operation.handler else result or None,
            attempts=history.attempts,
            attempt_count=history.attempt_count,
            waits=[wait.delay_seconds for wait in self.waits],
            reasons=[wait.reasons for wait in self.waits],
            dead_letter=dead_letter,
            writes=list(result.get("writes", ())),
            events=events,
            steps=[shown(step, status).to_json() for name, step in self.steps.items() if name != HEARTBEAT],
            progress=json.loads(self.steps[HEARTBEAT].result or "null") if HEARTBEAT in self.steps else None,
            seconds=self.time.monotonic_seconds(),
        )
