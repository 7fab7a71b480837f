"""Everybody who wants something of the app: callers, sources, operators, and the timers that tidy up.

They call the app's HTTP functions as the host does, and come again when they are not answered.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import azure.functions as func

from durable_retry.base.names import CIRCUIT_BREAKER, OperationState
from durable_retry.circuit import routes as circuits
from durable_retry.dead_letters import routes as dead_letters
from durable_retry.dead_letters.records import find_dead_letters
from durable_retry.features.circuit_controls import routes as controls
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.freeze import routes as freezes
from durable_retry.features.freeze.rules import HoldState
from durable_retry.features.holding.rules import BY_POLICY
from durable_retry.features.replay import routes as replays
from durable_retry.features.workflows import routes as workflows
from durable_retry.hub.entity_ids import dependency_of
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake import routes as submissions
from durable_retry.intake.intake import BackpressureMonitor, Intake, NotAcceptedError
from durable_retry.operations import routes as operations
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.dead_letters.record import Status
from durable_retry.rules.intake import Arrival
from durable_retry.settings.intake import intake_settings
from durable_retry_console.bulk import routes as bulk_actions
from durable_retry_console.bulk.shapes import BulkState
from tests.simulation.app import COPY, DEBIT, REFUSING, TRANSFER, WRITES, App
from tests.simulation.regulars import REGULAR
from tests.simulation.targets import BANK, MODEL, REFUSING_QUEUE, REPORTS, REVOKED, TENANTS
from tests.simulation.world import Worker, World

CONTROLS = {route.function: route.respond for route in controls.routes.table}
ROUTES = {
    "submit": submissions.submit_operation,
    "cancel": operations.cancel_operation,
    "hurry": operations.retry_operation_now,
    "try": operations.try_operation,
    "show": operations.get_operation,
    "pause": operations.pause_operation,
    "resume": operations.resume_operation,
    "batch": workflows.submit_batch,
    "saga": workflows.submit_saga,
    "restart": workflows.restart_failed_saga,
    "replay": replays.replay_one_dead_letter,
    "archive": dead_letters.archive_dead_letter,
    "restore": dead_letters.restore_dead_letter,
    "act on many": bulk_actions.start_action_on_many,
    "show many": bulk_actions.get_action_on_many,
    "resume many": bulk_actions.resume_action_on_many,
    "cancel many": bulk_actions.cancel_action_on_many,
    "circuit": circuits.get_circuit,
    "open": CONTROLS["open_circuit"],
    "close": CONTROLS["close_circuit"],
    "reset": CONTROLS["reset_circuit"],
    "hold": freezes.hold_all,
    "held": freezes.get_hold,
    "thaw": freezes.thaw_hold,
}
_FINISHED = 200
_ACCEPTED = 202
_KEY_REUSED = 422
_AWAY = 503
_TRIES = 700
_HEADERS = {"key": "Idempotency-Key", "wait": "Prefer"}
RIVAL = "/rivals"
_REFUSED = 0.2
"""How many writes of handlers, and of events, storage refuses for good."""
DEPENDENCIES_HELD = ("payments", "ledger", "mail", "stock", "depot")
"""Those whose circuits are opened by hand."""
HOLDING = {"max_attempts": 2, "on_exhausted": "hold", "hold_seconds": 300}
"""What some operations have as their policy."""
_HISTORY_KEPT = timedelta(minutes=30)
_CROWD_SECONDS = 20.0
_QUEUE_SECONDS = 100.0
_LANES = 2
_KEYS = 3  # one of them is that of operations without a limit key
_MOST = 0.8
_HANDLED = 0.25
_MENDING_SECONDS = 25.0
_THAWS = 40


@dataclass(frozen=True)
class Stop:
    """What was seen of a stop of a bulk replay.

    Attributes:
        stopped: The document that showed it.
        later: The document later, before anybody resumed it.
        left: Some dead letters that were open then.
        still_open: Those of them that were open later.
    """

    stopped: dict[str, Any]
    later: dict[str, Any]
    left: frozenset[str]
    still_open: frozenset[str]


@dataclass
class People:
    """All of them, and what they know of what was promised to them.

    Attributes:
        accepted: Operation ids that the app said it has taken over, and the life in which it said so.
        rivals: Operations of raced keys, and whether the rival's was accepted.
        messages: Ids of messages that the app took over, as whatever.
        malformed: Ids of messages that are no operations.
        hurried: When somebody asked for an operation's retry at once, and when that was answered.
        held: What was paused: the operation, when that was answered, and when a resume was asked for.
        paused: When the pause of an operation was accepted.
        pausing: Operations that somebody pauses and resumes, each once.
        cancelled: Operations that somebody asked to cancel.
        answered: Status documents of finished operations that a submission was answered with.
        batches: Ids of accepted batches, with the number of their items.
        sagas: Ids of accepted sagas, with their numbers.
        in_order: When an operation with an order key was first submitted, and when that was answered, by the
            operation and the life.
        put_away: Dead letters that somebody archived, and since when.
        all_put_away_at: When all were; None before that.
        regulars: Numbers of orchestrators of the app that call operations.
        stops: Of bulk replays.
    """

    world: World
    app: App
    accepted: set[tuple[str, int]] = field(default_factory=set)
    rivals: dict[tuple[str, int], bool] = field(default_factory=dict)
    messages: set[str] = field(default_factory=set)
    malformed: set[str] = field(default_factory=set)
    hurried: dict[str, list[tuple[datetime, datetime]]] = field(default_factory=dict)
    held: list[tuple[str, datetime, datetime]] = field(default_factory=list)
    paused: dict[str, datetime] = field(default_factory=dict)
    pausing: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    answered: list[dict[str, Any]] = field(default_factory=list)
    batches: dict[str, int] = field(default_factory=dict)
    sagas: dict[str, int] = field(default_factory=dict)
    in_order: dict[tuple[str, int], tuple[datetime, datetime]] = field(default_factory=dict)
    put_away: dict[str, datetime] = field(default_factory=dict)
    all_put_away_at: datetime | None = None
    regulars: set[int] = field(default_factory=set)
    stops: list[Stop] = field(default_factory=list)

    # Calling the app.

    async def on_some_worker[T](self, work: Callable[[Worker], Coroutine[Any, Any, T]]) -> T | None:
        """Run something on a worker; None when it died on the way."""
        while not self.world.workers:  # noqa: ASYNC110 - time is virtual, and looking costs little
            await asyncio.sleep(1)
        worker = self.world.rng.choice(self.world.workers)
        task = self.world.run(worker, work(worker))
        await worker.outlives(task)
        return task.result() if task.done() else None

    async def try_call(self, route: str, body: Any = None, **parameters: str) -> tuple[int, Any] | None:
        """Call a route once; None where its worker died on the way."""
        return await self.on_some_worker(
            lambda worker: _invoked(route, TaskHub(worker.name), body, parameters)
        )

    async def call(self, route: str, body: Any = None, **parameters: str) -> tuple[int, Any]:
        """Call a route until it answers; who is not answered for an hour gives up."""
        for _ in range(_TRIES):
            answer = await self.try_call(route, body, **parameters)
            if answer is not None and answer[0] != _AWAY:
                self.world.note(route, *parameters.values(), answer[0])
                return answer
            await asyncio.sleep(self.world.rng.uniform(0.5, 10))
        self.world.mistake(f"{route} {parameters} was never answered")
        return _AWAY, {}

    # Callers.

    async def caller(self, number: int) -> None:
        """Submit one operation, perhaps more than once, and perhaps change one's mind."""
        rng = self.world.rng
        within = _CROWD_SECONDS if self.world.is_crowded else self.world.scale.storm_seconds * 0.9
        within = min(within, _QUEUE_SECONDS) if self.world.chances.ordered else within
        await asyncio.sleep(rng.uniform(0, within))
        body = self.body_of(number)
        if rng.random() < 0.1:
            await self.race(body)
            return
        by_queue = rng.random() < 0.2
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            if by_queue:
                await self.deliver(json.dumps(body).encode(), f"m-{number}")
            else:
                await self.submit(body)
            await asyncio.sleep(
                rng.choice([0, rng.expovariate(1 / 60), rng.uniform(0, self.world.scale.storm_seconds)])
            )
        if rng.random() < 0.1:
            await self.reuse_key(number)

    async def submit(self, body: dict[str, Any]) -> None:
        """Submit an operation, and perhaps change one's mind."""
        waits = self.world.rng.choice(["wait=0", "wait=0", "wait=0", "wait=10"])
        asked_at = self.world.now()
        status, answer = await self.call("submit", body, wait=waits)
        if status not in {_FINISHED, _ACCEPTED}:
            self.world.mistake(f"{body['key']} was refused: {status} {answer}")
            return
        if status == _FINISHED:
            self.answered.append(answer)
        self.accept(answer["operation_id"])
        if "order_key" in body and "delay_seconds" not in body:
            self.in_order.setdefault(
                (answer["operation_id"], len(self.world.lives)), (asked_at, self.world.now())
            )
        await self.steer(answer["operation_id"])
        if body.get("retry") == HOLDING:
            await self.relieve(answer["operation_id"])

    def accept(self, operation_id: str) -> None:
        self.accepted.add((operation_id, len(self.world.lives)))

    async def race(self, body: dict[str, Any]) -> None:
        """Post two operations under one new key at once: one is accepted, the other is refused."""
        rival = {"dependency": "payments", "request": {"method": "POST", "path": RIVAL}, "key": body["key"]}
        answers = await asyncio.gather(self.call("submit", body), self.call("submit", rival))
        statuses = [status for status, _ in answers]
        refused = [status == _KEY_REUSED for status in statuses]
        if sum(refused) != 1 or _AWAY in statuses:
            self.world.mistake(f"two operations posted at once as {body['key']} got {statuses}")
            return
        operation_id = answers[refused.index(False)][1]["operation_id"]
        self.accept(operation_id)
        self.rivals[operation_id, len(self.world.lives)] = refused[0]

    async def reuse_key(self, number: int) -> None:
        """Use the key of an operation for another."""
        request = {"method": "POST", "path": "/something/else"}
        other = {"dependency": "payments", "request": request, "key": f"key-{number}"}
        status, _ = await self.call("submit", other)
        if status != _KEY_REUSED:
            self.world.mistake(f"the key key-{number} was used for something else: {status}")

    async def steer(self, operation_id: str) -> None:
        """Cancel an operation, retry it now, also past its circuit, or leave it alone.

        Who is impatient clicks more than once.
        """
        rng = self.world.rng
        if self.world.chances.patient and rng.random() < 0.5:
            await self.hold(operation_id)
            return
        if rng.random() > 0.3:
            return
        await asyncio.sleep(rng.uniform(0, 60))
        if rng.random() < 0.3:
            self.cancelled.add(operation_id)
            await self.call("cancel", operation_id=operation_id)
        else:
            clicks = rng.choice([1, 2, 2, 3])
            await asyncio.gather(*(self._hurry(operation_id) for _ in range(clicks)))

    async def hold(self, operation_id: str) -> None:
        """Pause an operation, look whether it is paused, and let it go on."""
        rng = self.world.rng
        await asyncio.sleep(rng.uniform(0, 60))
        body = {"stops_deadline": rng.random() < 0.5} | ({"for_seconds": 600} if rng.random() < 0.3 else {})
        if operation_id in self.pausing:
            return
        self.pausing.add(operation_id)
        by_many = rng.random() < 0.3
        if by_many:
            await self.call("act on many", {"action": "pause", "ids": [operation_id], **body})
        elif (await self.call("pause", body, operation_id=operation_id))[0] == _ACCEPTED:
            self.paused[operation_id] = self.world.now()
        # Who paused another one than was meant lets it go on at once.
        least, longest = (1, 3) if rng.random() < 0.5 else (60, 90)
        await asyncio.sleep(rng.uniform(least, longest))
        _, seen = await self.call("show", operation_id=operation_id)
        seen_at = self.world.now()
        await asyncio.sleep(rng.uniform(0, least))
        is_held = seen["status"] == OperationState.PAUSED and seen["actions"][-1]["by"] != BY_POLICY
        if is_held and "for_seconds" not in body:
            self.held.append((operation_id, seen_at, self.world.now()))
        if by_many:
            await self.call("act on many", {"action": "resume", "ids": [operation_id]})
        else:
            await self.call("resume", operation_id=operation_id)

    async def relieve(self, operation_id: str) -> None:
        """Let an operation go on that its policy may hold, changed, or leave it alone."""
        rng = self.world.rng
        await asyncio.sleep(rng.uniform(30, 200))
        if rng.random() < 0.4 or operation_id in self.pausing:
            return
        self.pausing.add(operation_id)
        change = {"deadline_seconds": 600, "priority": "high", "retry": {"initial_seconds": 0.5}}
        await self.call("resume", change | {"at_once": rng.random() < 0.3}, operation_id=operation_id)

    async def _hurry(self, operation_id: str) -> None:
        asked_at = self.world.now()
        if self.world.rng.random() < 0.5:
            await self.call("try", {"reason": "it may work again"}, operation_id=operation_id)
        else:
            await self.call("hurry", operation_id=operation_id)
        self.hurried.setdefault(operation_id, []).append((asked_at, self.world.now()))

    def body_of(self, number: int) -> dict[str, Any]:
        """Return what to submit."""
        rng = self.world.rng
        handled = _MOST if self.world.chances.swapping else _HANDLED
        if rng.random() < handled and not self.world.is_crowded:
            return self._handled(number)
        dependency = rng.choice(["payments", "payments", "ledger", "mail"])
        if dependency == "ledger" and number % 3:
            dependency = BANK
        if self.world.is_crowded:
            dependency = "mail"
        path = "/refused" if rng.random() < 0.05 else f"/things/{number}"
        body: dict[str, Any] = {
            "dependency": dependency,
            "request": {
                "method": "POST",
                "path": path,
                "json": {"number": number, "life": len(self.world.lives)},
            },
            "key": f"key-{number}",
            **self._order_of(number),
        }
        body |= self._customer_of(number)
        if rng.random() < 0.3:
            queue = REFUSING_QUEUE if rng.random() < _REFUSED else "done"
            body["on_success"] = [
                {"type": queue, "queue": queue, "data": number},
                {"type": "told", "dependency": "hooks", "path": "/hook", "data": number},
            ][: rng.randint(1, 2)]
        if number % 3 == 0:
            body["on_failure"] = [
                {"type": "done", "queue": "done", "data": {"number": number}},
                {"type": "told", "dependency": "hooks", "path": "/hook"},
            ][: 1 + number % 2]
        if rng.random() < 0.1:
            body["deadline_seconds"] = rng.choice([20, 90, 300])
        if self.world.chances.patient:
            body |= {"delay_seconds": rng.choice([1, 20, 90])} if rng.random() < 0.4 else {}
            body |= {"retry": HOLDING} if rng.random() < 0.4 else {}
        if self.world.chances.bouncing and rng.random() < 0.7:
            body |= {"debounce_key": rng.choice(["a", "b"]), "debounce_seconds": rng.choice([5, 20, 60])}
            if rng.random() < 0.3:
                body["debounce_max_seconds"] = 2 * body["debounce_seconds"]
        return body

    def _handled(self, number: int) -> dict[str, Any]:
        """Return what to submit for a handler."""
        rng, chances = self.world.rng, self.world.chances
        table = rng.choice(list(REFUSING)) if rng.random() < _REFUSED else WRITES
        handler = rng.choice(["reserve", "fulfil", "fulfil"])
        if chances.swapping:
            handler, table = DEBIT, WRITES
        elif chances.reporting:
            handler = COPY
        elif number % 4 == 0:
            # What has happened and cannot be kept is not asked about.
            handler, table = TRANSFER, WRITES
        return {
            "handler": handler,
            "input": {"number": number, "life": len(self.world.lives), "table": table},
            "key": f"key-{number}",
            **self._order_of(number),
        }

    def _customer_of(self, number: int) -> dict[str, Any]:
        """Return what most operations are in worlds of their own: of a customer, at a certain dependency."""
        if self.world.is_crowded:
            priority = {"priority": self.world.rng.choice(["high", "normal", "low"])}
            return priority | ({"limit_key": f"customer-{number % _KEYS}"} if number % _KEYS else {})
        if self.world.chances.keyed and self.world.rng.random() < _MOST:
            return {"dependency": TENANTS, "limit_key": f"customer-{number % 2}"}
        if self.world.chances.polled and self.world.rng.random() < _MOST:
            return {"dependency": REPORTS}
        if self.world.chances.falling and self.world.rng.random() < _MOST:
            return {"dependency": MODEL}
        return {}

    def _order_of(self, number: int) -> dict[str, Any]:
        """Return the order key of an operation, in worlds that have some."""
        if not self.world.chances.ordered or self.world.rng.random() < 0.2:
            return {}
        order = {"order_key": f"lane-{number % _LANES}"}
        return order if self.world.rng.random() < 0.7 else {**order, "order_on_failure": "skip"}

    async def malformed_message(self, number: int) -> None:
        """Deliver something that is no operation."""
        await asyncio.sleep(self.world.rng.uniform(0, self.world.scale.storm_seconds * 0.9))
        text = self.world.rng.choice([b"{", b'{"dependency": "nobody"}', b'{"unknown": 1}'])
        self.malformed.add(f"bad-{number}")
        await self.deliver(text, f"bad-{number}")

    async def deliver(self, text: bytes, message_id: str) -> None:
        """Deliver a message until it is taken over, and perhaps once more."""
        rng = self.world.rng
        arrival = Arrival(source="queue", body=text, place="operations", native_id=message_id)
        for _ in range(rng.choice([1, 1, 2])):
            while True:
                if await self.on_some_worker(lambda worker: _taken(worker, arrival)):
                    break
                await asyncio.sleep(rng.uniform(1, 30))
        self.messages.add(arrival.native_id)

    async def batch(self, number: int) -> None:
        """Submit a batch with a bad item, and perhaps again under its key."""
        rng = self.world.rng
        await asyncio.sleep(rng.uniform(0, self.world.scale.storm_seconds * 0.7))
        items = [
            self.body_of(number * 1_000 + place)
            for place in range(rng.randint(*self.world.scale.batch_items))
        ]
        items.insert(rng.randrange(len(items)), {"dependency": "nobody"})
        body = {"items": items, "max_concurrency": rng.randint(1, 3)}
        for _ in range(rng.choice([1, 2])):
            status, answer = await self.call("batch", body, key=f"batch-{number}")
            assert status == _ACCEPTED, answer
            self.batches[answer["batch_id"]] = len(items)
            await asyncio.sleep(rng.uniform(0, 60))

    async def saga(self, number: int) -> None:
        """Start a saga whose last step may be refused."""
        rng = self.world.rng
        await asyncio.sleep(rng.uniform(0, self.world.scale.storm_seconds * 0.7))
        steps = [
            _step(
                number,
                place,
                is_refused=rng.random() < (0.4 if place else 0.1),
                refers=place > 0,
            )
            for place in range(rng.randint(1, self.world.scale.saga_steps))
        ]
        for _ in range(rng.choice([1, 2])):
            status, answer = await self.call("saga", {"steps": steps}, key=f"saga-{number}")
            assert status == _ACCEPTED, answer
            self.sagas[answer["saga_id"]] = number
            await asyncio.sleep(rng.uniform(0, 60))
        for _ in range(rng.choice([0, 2, 6])):
            await asyncio.sleep(rng.uniform(0, self.world.scale.storm_seconds * 0.1))
            await self.restart(answer["saga_id"])

    async def restart(self, saga_id: str) -> None:
        """Run a saga again where it was compensated, sometimes while somebody else does."""
        rng = self.world.rng
        bodies = [{"from_step": "step-0"} if rng.random() < 0.3 else {} for _ in range(rng.choice([1, 2]))]
        await asyncio.gather(*(self.call("restart", body, saga_id=saga_id) for body in bodies))

    async def restart_everything(self) -> None:
        """Run every saga again that was compensated."""
        for saga_id in sorted(self.sagas):
            await self.restart(saga_id)

    # Operators.

    async def operator(self) -> None:
        """Look at dead letters now and then; replay some, put some away and take them out again."""
        while self.world.seconds < self.world.storm_ends:
            await asyncio.sleep(self.world.rng.uniform(*self.world.scale.operator_seconds))
            for letter in await self.open_letters():
                await self.treat(letter)

    async def treat(self, dead_letter_id: str) -> None:
        """Do something about a dead letter, or nothing."""
        chance = self.world.rng.random()
        if chance < 0.4:
            await self.call("replay", dead_letter_id=dead_letter_id)
        elif chance < 0.5:
            self.put_away.setdefault(dead_letter_id, self.world.now())
            await self.call("archive", dead_letter_id=dead_letter_id)
            await asyncio.sleep(self.world.rng.uniform(1, 60))
            await self.call("restore", dead_letter_id=dead_letter_id)

    async def resume_everything(self) -> None:
        """Resume what is paused still, or is late to be, once every pause has arrived."""
        if self.pausing:
            await asyncio.sleep(self.world.scale.latest_seconds)
        for operation_id in sorted(self.pausing):
            await self.call("resume", operation_id=operation_id)

    async def replay_everything(self) -> None:
        """Replay all open dead letters in bulk; resume that twice where it stops, then do the rest."""
        body = {"action": "replay", "filter": {}, "rate_per_second": 50}
        _, started = await self.call("act on many", body | {"stop_at_failed": 0.0})
        await self.see_through(started["action_id"])
        await self.call("act on many", body | {"probe": False})

    async def see_through(self, action_id: str) -> None:
        """Resume a bulk action where it stops, twice, and cancel it the third time."""
        stopped_at = None
        for goes_on in ("resume many", "resume many", "cancel many"):
            shown = await self.stopped_or_ended(action_id, stopped_at)
            if shown["status"] != BulkState.STOPPED:
                break
            await self.look_at_stop(shown)
            await self.call(goes_on, action_id=action_id)
            stopped_at = shown["stopped_at"]

    async def stopped_or_ended(self, action_id: str, stopped_at: str | None) -> dict[str, Any]:
        """Return a bulk action's document once it has stopped, after the stop at an instant, or ended."""
        shown: dict[str, Any] = {}
        for _ in range(_TRIES):
            shown = (await self.call("show many", action_id=action_id))[1]
            goes_on = shown["status"] == BulkState.RUNNING or shown["stopped_at"] == stopped_at is not None
            if not goes_on:
                break
            await asyncio.sleep(self.world.rng.uniform(1, 30))
        return shown

    async def look_at_stop(self, stopped: dict[str, Any]) -> None:
        """Look for a while at what a bulk action has left that stopped."""
        left = await self.open_letters()
        await asyncio.sleep(self.world.rng.uniform(10, 300))
        _, shown = await self.call("show many", action_id=stopped["action_id"])
        still_open = await self.open_among(left)
        self.stops.append(Stop(stopped, shown, frozenset(left), frozenset(still_open)))

    async def archive_everything(self) -> None:
        """Put all open dead letters away, by bulk actions until none is left."""
        self.all_put_away_at = self.world.now()
        while await self.open_letters():
            await self.call("act on many", {"action": "archive", "filter": {}, "rate_per_second": 100})
            await asyncio.sleep(self.world.rng.uniform(30, 60))

    async def open_letters(self) -> list[str]:
        """Return the ids of some open dead letters."""
        page = None
        while page is None:
            page = await self.on_some_worker(
                lambda _worker: _listed(
                    list_dead_letters(DeadLetterFilter(status=Status.OPEN), limit=100, cursor=None)
                )
            )
        return [record.id for record in page.records]

    async def open_among(self, ids: list[str]) -> list[str]:
        """Return the ids of those dead letters that are open still."""
        found = None
        while found is None:
            found = await self.on_some_worker(lambda _worker: _listed(find_dead_letters(ids)))
        return [record.id for record in found if record is not None and record.status is Status.OPEN]

    async def close_what_is_held(self) -> None:
        """Look at the circuits when every message has arrived, and close those that are still held open.

        Changes by hand hold in the order of their arrival, and an opening may come minutes after its closing.
        """
        await asyncio.sleep(self.world.scale.latest_seconds)
        circuits = {name: state for name, state in self.app.hub.states.items() if CIRCUIT_BREAKER in name}
        for name, state in circuits.items():
            breaker = Breaker.from_json(state or {})
            if breaker.state is CircuitState.FORCED_OPEN:
                dependency = dependency_of(name.rpartition("@")[2])
                body = {"reason": "it was held open still", "limit_key": breaker.limit_key}
                await self.call("close", body, dependency=dependency)

    async def freezer(self) -> None:
        """Hold everything, and thaw it in waves; now and then hold it again meanwhile."""
        rng, storm_seconds = self.world.rng, self.world.scale.storm_seconds
        await asyncio.sleep(rng.uniform(0, storm_seconds * 0.3))
        for _ in range(rng.choice([1, 2])):
            ends = {"for_seconds": rng.uniform(30, 200)} if rng.random() < 0.3 else {}
            await self.call("hold", {"reason": "a drill", **ends})
            await asyncio.sleep(rng.uniform(5, storm_seconds * 0.3))
            await self.call("thaw", {"waves": [0.3, 1.0], "wave_seconds": rng.uniform(0, 20)})
            await asyncio.sleep(rng.uniform(5, 60))

    async def thaw_everything(self) -> None:
        """Thaw what is held still, once every message has arrived, and again where a circuit stops that."""
        await asyncio.sleep(self.world.scale.latest_seconds)
        for _ in range(_THAWS):
            _, shown = await self.call("held")
            if shown["status"] == HoldState.FREE:
                return
            if shown["status"] == HoldState.HELD:
                await self.call("thaw", {"waves": [1.0], "wave_seconds": 0})
            await asyncio.sleep(30)
        self.world.mistake("everything is held still")

    async def regular(self, number: int) -> None:
        """Let an orchestrator of the app begin that calls operations."""
        await asyncio.sleep(self.world.rng.uniform(0, self.world.scale.storm_seconds * 0.9))
        self.regulars.add(number)
        given = json.dumps({"number": number, "got": []})
        self.app.hub.start(REGULAR, f"{REGULAR}-{number}", given, replaces_ended=False)

    async def electrician(self) -> None:
        """Open circuits by hand and close them again; every other time deadlines stop meanwhile."""
        stops = False
        while self.world.seconds < self.world.storm_ends - self.world.scale.storm_seconds * 0.1:
            await asyncio.sleep(self.world.rng.uniform(*self.world.scale.electrician_seconds))
            of_tenants = (TENANTS,) * 3 if self.world.chances.keyed else ()
            of_model = (MODEL,) * 3 if self.world.chances.falling else ()
            dependency = self.world.rng.choice(DEPENDENCIES_HELD + of_tenants + of_model)
            is_of_key = dependency == TENANTS and self.world.happens(0.5)
            key = {"limit_key": REVOKED} if is_of_key else {}
            stops = not stops
            body = {"reason": "maintenance", "stops_deadline": stops, **key}
            await self.call("open", body, dependency=dependency)
            at_least = (
                5 if self.world.happens(self.world.chances.hasty) else self.world.clock_difference.seconds
            )
            await asyncio.sleep(self.world.rng.uniform(max(5, at_least), 120))
            route = self.world.rng.choice(["close", "reset"])
            await self.call(route, {"reason": "it is over", **key}, dependency=dependency)


async def _invoked(route: str, hub: TaskHub, body: Any, parameters: dict[str, str]) -> tuple[int, Any]:
    headers = {name: parameters[given] for given, name in _HEADERS.items() if given in parameters}
    request = func.HttpRequest(
        "POST",
        "http://localhost:7071/api/x",
        headers=headers,
        body=b"" if body is None else json.dumps(body).encode(),
    )
    answer = await ROUTES[route](request, hub, parameters)
    return answer.status_code, json.loads(answer.get_body())


async def _taken(worker: Worker, arrival: Arrival) -> bool:
    settings = intake_settings()
    try:
        await Intake(settings, BackpressureMonitor(settings.lag, 0)).accept(TaskHub(worker.name), arrival)
    except NotAcceptedError:
        return False
    return True


async def _listed[T](listing: Coroutine[Any, Any, T]) -> T | None:
    """Return a list, or None when the storage was away."""
    try:
        return await listing
    except Exception:  # noqa: BLE001 - an operator looks again
        return None


def _step(number: int, place: int, *, is_refused: bool, refers: bool) -> dict[str, Any]:
    def body(what: str, path: str) -> dict[str, Any]:
        given: dict[str, Any] = {"saga": number, "step": place}
        if refers:
            given["before"] = {"$result": f"step-{place - 1}#/json/seen"}
        request = {"method": "POST", "path": path, "json": given}
        return {"dependency": "payments", "request": request, "key": f"saga-{number}-{place}-{what}"}

    # What is refused is mended halfway through the storm, or never.
    end = "" if not is_refused else "/mended" if place else "/refused"
    path = f"/sagas/{number}/{place}{end}"
    return {
        "name": f"step-{place}",
        "operation": body("do", path),
        "compensation": body("undo", f"/sagas/{number}/{place}/undo"),
    }
