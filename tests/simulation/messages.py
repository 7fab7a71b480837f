"""Messages to orchestrations, on their way: mostly soon, but also late, twice and in any order."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from durabletask.client import OrchestrationStatus

from durable_retry.base.names import ATTEMPT
from durable_retry.hub.orchestrations import watched_names
from tests.simulation.turns import Session
from tests.simulation.world import World
from tests.support.history import Completed, Event, Raised

type Asker = tuple[str, int]
"""An instance's id, and the number of its execution."""

type Asked = tuple[str, int | str]
"""What an answer is to: an activity by its name and task, a timer by its task, an entity by the request."""

_ABANDONED_SECONDS: Final = 5.0
_KNOWN: Final = ("operation", "delivery")


@dataclass
class Instance:
    """One orchestration instance, and its present execution.

    Attributes:
        instance_id: Its id.
        name: Of its orchestrator.
        input: As JSON text, of the present execution.
        created_at: When its present run was started.
        execution: Number of the present execution, among all of the hub's.
        runs: How often it was started.
        is_repeated: Whether a turn was made again after its messages had gone out.
        said_to_end_at: When the messages of its last turn first went out; None before.
        is_uncommitted: Whether its last turn's messages went out and its history did not commit.
        awaits: What its history asks for and has no answer to.
        given_up: The attempts of these of which another execution has answered first.
        parents: Who waits for its end, and for the answer to what.
        is_crossed: Whether something got the answer of something else; what comes of that, the SDK must say.
    """

    instance_id: str
    name: str
    input: str
    created_at: datetime
    updated_at: datetime
    execution: int
    runs: int = 1
    past: list[Event] = field(default_factory=list)
    inbox: list[Event] = field(default_factory=list)
    status: OrchestrationStatus = OrchestrationStatus.RUNNING
    custom_status: str | None = None
    output: str | None = None
    turn_due: bool = False
    is_repeated: bool = False
    said_to_end_at: datetime | None = None
    is_uncommitted: bool = False
    awaits: set[Asked] = field(default_factory=set)
    given_up: set[Asked] = field(default_factory=set)
    session: Session | None = None
    parents: list[tuple[Asker, int]] = field(default_factory=list)
    is_crossed: bool = False

    @property
    def asker(self) -> Asker:
        """Its present execution."""
        return self.instance_id, self.execution

    def give_up_others(self, asked: Asked) -> None:
        """Note that an attempt which was asked for more than once has its answer."""
        if asked[0] == ATTEMPT:
            self.given_up |= {other for other in self.awaits if other[0] == ATTEMPT}

    @property
    def is_running(self) -> bool:
        return self.status is OrchestrationStatus.RUNNING


@dataclass(kw_only=True)
class Messages:
    """What is on its way to instances, and the instances.

    Attributes:
        under_way: Messages and activities that will still cause something; timers and expiries do not count.
        lost_messages: How many were lost, by the instance that waits for them.
    """

    world: World
    instances: dict[str, Instance] = field(default_factory=dict)
    under_way: int = 0
    lost_messages: Counter[str] = field(default_factory=Counter)
    _held: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.on_birth.append(lambda _worker: self._go_on())

    def _go_on(self) -> None:
        """Let everything arrive that came while the app was stopped."""
        held, self._held = self._held, []
        for arrived in held:
            arrived()

    def _loses(self, instance: Instance, what: str) -> bool:
        """Whether a message is lost that an instance waits for: one of those that `watch` looks after."""
        lost = self.world.chances.lost
        # Worlds that lose nothing draw nothing.
        if not lost or instance.name not in watched_names() or not self.world.happens(lost):
            return False
        self.world.note("loses", instance.instance_id, what)
        self.lost_messages[instance.instance_id] += 1
        return True

    def _send(self, arrive: Callable[[], object], doubled: float | None = None) -> None:
        """Let a message arrive: mostly soon, but also late, and sometimes twice.

        Args:
            arrive: What it does.
            doubled: How likely it arrives twice; None means as likely as any message.
        """
        doubled = self.world.chances.doubled if doubled is None else doubled
        for _ in range(2 if self.world.happens(doubled) else 1):
            self._deliver(self.world.delay_seconds(), arrive)

    def _deliver(self, seconds: float, arrive: Callable[[], object]) -> None:
        self.under_way += 1

        def arrived() -> None:
            if self.world.is_stopped:
                self._held.append(arrived)
                return
            self.under_way -= 1
            arrive()

        self.world.later(seconds, arrived)

    def _event(self, instance_id: str, name: str, data: str | None) -> None:
        instance = self.instances.get(instance_id)
        if instance is not None and instance.is_running:
            self._take(instance, Raised(name, data))

    def _take(self, instance: Instance, event: Event) -> None:
        instance.inbox.append(event)
        self._turn_soon(instance)

    def _answer(
        self, asker: Asker, asked: Asked, event: Event, taken: Callable[[], None] = lambda: None
    ) -> None:
        """Answer what an execution asked for, once. An answer to what no history holds comes again later.

        The platform compares numbers only: what a lost turn asked for may answer something else.
        """
        known = self.instances.get(asker[0])
        if known is None or not known.is_running or known.asker != asker:
            return
        if asked in known.awaits:
            known.awaits.discard(asked)
            if asked not in known.given_up:
                taken()
            if isinstance(event, Completed):
                known.give_up_others(asked)
            self._take(known, event)
        elif _is_of_another(asked, known.awaits):
            known.is_crossed = True
            self._take(known, event)
        elif known.is_uncommitted:
            self._deliver(_ABANDONED_SECONDS, lambda: self._answer(asker, asked, event, taken))

    def _newer(self, text: str) -> str:
        """Return JSON as a later version may have written it, with fields that this one does not have."""
        if not self.world.happens(self.world.chances.newer):
            return text
        value = json.loads(text)
        for known in (value, *(value.get(name) for name in _KNOWN)) if isinstance(value, dict) else ():
            if isinstance(known, dict):
                known["from_a_later_version"] = {"at": 1}
        return json.dumps(value)

    def _turn_soon(self, instance: Instance) -> None:
        raise NotImplementedError


def _is_of_another(asked: Asked, awaits: set[Asked]) -> bool:
    """Whether an answer has the number of what asks for something else."""
    return any(number == asked[1] and name != asked[0] for name, number in awaits)
