"""What a crowd is: how many want how much of what, on a hub of which size, and what happens to them.

Everything is drawn from the seed. Each kind of trouble comes in turn, so that a few seeds in a row have all.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from random import Random
from typing import Final, Self

from durable_retry.features.limits.rules.settings import LEAST_SHARED, LimitSettings
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.config.dependencies_file import Config, parse_config
from durable_retry.rules.retry.slots import DOOR_SECONDS
from tests.simulation.targets import THROTTLED_WORD, WORDED_STATUS

NEIGHBOUR: Final = "payments"
"""It has no limits, and nothing ever happens to it."""
UNSAFE: Final = "ledger"
"""It does not deduplicate."""
SAFE: Final = "mail"
_MOST_FLOODED: Final = 6
"""Places that a flood fills."""
SPARE: Final = "stock"
"""What a crowd of `SAFE` may fall back to; it has the same limits."""
OF_HANDLER: Final = "depot"
"""What the handler of a crowd posts to before it takes a step at `SAFE`; it does not deduplicate."""

HEAVY: Final = "customer-0"
WEIGHT: Final = 3.0
"""The limit key that may have so many times the share of another."""
_FEW_KEYS: Final = 3
_LANES: Final = 20
_MANY_PLACES: Final = 100
_SOON: Final = 4
_ASKED_PART: Final = 0.7
_SLOTS: Final = [LEAST_SHARED, 2, 20, LEAST_SHARED + 1]
"""Calls at once where nothing else bounds them: most of these numbers are shared out among the workers."""
_SOON_OVER: Final = 10.0
"""An attempt may take so long where workers join each other and share slots out, so that they soon do."""
_RANKED_PART: Final = 0.5
"""So many of the crowds whose trouble lets those that wait go in order are such that this is looked at."""

LATER: Final = "later-"
"""What the new name of a renamed dependency begins with; people and handlers say the old one."""
_AUTH: Final = 'auth = { value = "Bearer of-the-app" }'
UNAUTHORIZED_CALLS: Final = 3
_LOOKUP: Final = 'lookup = { path = "/effects/{key}-{input/life}", found = "/effect", settle_seconds = 90 }'
SHOWS_WITHIN: Final = 80.0
"""Seconds until what is asked shows an effect: longer than a circuit is open, which holds up who asks."""
_RULES: Final = (
    f'classify = {{ busy = {{ status = {WORDED_STATUS}, pointer = "/code", equals = "{THROTTLED_WORD}", '
    'category = "throttled" } }'
)
_POLL: Final = 'poll = { location = "/job", every_seconds = 5 }'

DEDUPLICATING: Final = frozenset({SAFE, NEIGHBOUR, SPARE})

MINIMUM_PER_SECOND: Final = 1.0
"""Retries that a budget allows each second beyond those of its ratio."""


class Trouble(StrEnum):
    """What happens to a crowd while it waits."""

    NONE = "none"
    CANCELLED = "cancelled"  # many of them
    RESTARTED = "restarted"  # the app, when everything is due
    THROTTLED = "throttled"  # the dependency answers 429 with Retry-After for a moment
    TERMINATED = "terminated"  # many of them, by force
    DEPLOYED = "deployed"  # new workers, with a shorter `attempt_seconds`, beside old ones that finish
    BROKEN = "broken"  # the dependency refuses connections, and its circuit opens
    PAUSED = "paused"  # many of them, and resumed
    HURRIED = "hurried"  # all of them: retry now
    REMOVED = "removed"  # the dependency, from the file, and put back
    HELD = "held"  # the circuit, by hand, perhaps during a pause; some are tried all the same
    LIMITED = "limited"  # limits are lowered by a deploy, and raised again
    FREED = "freed"  # limits are taken out of the file by a deploy, and put back
    FROZEN = "frozen"  # everything, by hand, and let go in waves
    REPLAYED = "replayed"  # what the dependency has refused for good for a while, by a bulk action
    RESTARTED_AGAIN = "restarted again"  # the app, a second time while it recovers
    REVOKED = "revoked"  # the dependency refuses the app's credential for a while
    SLOWED = "slowed"  # each call takes so long for a while that the circuit opens
    STALLED = "stalled"  # the bodies of its answers do not come, be they refusals or successes
    UNHEARD = "unheard"  # its answers are lost, be it before or after the effect
    WORDED = "worded"  # it says by the body of a 400 alone that there are too many calls
    RENAMED = "renamed"  # it has another name after a deploy, and the earlier one is in `was`


CROWD_TROUBLES: Final = tuple(Trouble)

RANKED: Final = frozenset(
    {Trouble.NONE, Trouble.CANCELLED, Trouble.TERMINATED, Trouble.LIMITED, Trouble.HURRIED}
)
"""Troubles in which those that wait go in the order of the limits. A circuit releases without ranks."""
WITHOUT_ANSWER: Final = frozenset({Trouble.STALLED, Trouble.UNHEARD})
"""Troubles in which a call takes effect whose answer nobody gets."""
_WITH_CIRCUIT: Final = frozenset({Trouble.REVOKED, Trouble.SLOWED})
"""Troubles in which a circuit has to open."""


class Bound(StrEnum):
    """What the dependency's limits are."""

    NONE = "none"  # the places of the hub are all there is
    RATE = "rate"
    CONCURRENCY = "concurrency"
    BOTH = "both"
    PER_KEY = "per key"
    BUDGET = "budget"  # none, but for retries: each operation needs one, since its first attempt fails


IN_ONE_LINE: Final = (Bound.RATE, Bound.CONCURRENCY, Bound.BOTH)
"""Limits for which all wait together."""


def _keys_for(bound: Bound, *, is_ranked: bool) -> list[int]:
    if bound is Bound.PER_KEY:
        return [2, 1_000]
    return [0, _FEW_KEYS] if is_ranked else [0, 0, _FEW_KEYS]


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """A crowd.

    Attributes:
        operations: How many.
        workers: Of the app.
        places: How many activities each worker executes at once.
        bound: The limits of the dependency.
        rate_per_second: Its rate; 0 for none.
        max_concurrency: So many calls at once; 0 for any number.
        per_key: So many calls of one limit key at once; 0 for any number.
        rate_per_key: So many calls of one limit key a second; 0 for any number.
        keys: How many limit keys the operations have; 0 for none.
        ratio: Retries per first attempt, by the retry budget; 0 for any number.
        call_seconds: The least and the most that a call takes.
        attempt_seconds: The longest that it may take.
        dependency: What they want; that of the handler's operations is `OF_HANDLER`.
        trouble: What happens to them.
        part: How many of them it happens to.
        together: Whether all become due in one instant, some time after they were accepted.
        is_quick: Whether messages and timers are late by milliseconds only.
        has_flood: Whether slow calls of the neighbours fill the queue of the hub for minutes.
        has_key_circuits: Whether each limit key has a circuit of its own.
        in_steps: Whether the handler posts in a remembered step, so that no wait after it puts that in doubt.
        falls_back: Whether `SPARE` is asked while the circuit of the dependency is open.
        is_debounced: Whether every other operation replaces the one before it.
        has_priorities: Whether a third of them each is of high, normal and low priority.
        lanes: So many order keys the operations have; 0 for none.
        is_weighted: Whether the first limit key has three times the share of another.
        is_held: Whether what has no time left is held until it is resumed.
        is_polled: Whether the dependency accepts with 202, and is asked until its work has ended.
        refuses: Whether who comes while the circuit is held open is refused.
        is_asked: Whether the dependency is asked what became of a call whose end is unknown.
        deadline_part: The part of the time they all take after which the deadline of every fifth one is; 0
            for no deadlines.
    """

    operations: int
    workers: int
    places: int
    bound: Bound
    rate_per_second: float
    max_concurrency: int
    per_key: int
    keys: int
    ratio: float
    call_seconds: tuple[float, float]
    attempt_seconds: float
    dependency: str
    trouble: Trouble
    part: float
    together: bool
    is_quick: bool
    in_steps: bool
    has_flood: bool
    has_key_circuits: bool
    falls_back: bool
    is_debounced: bool
    has_priorities: bool
    rate_per_key: float
    deadline_part: float
    lanes: int
    is_weighted: bool
    is_held: bool
    is_polled: bool
    is_asked: bool
    refuses: bool

    @classmethod
    def of(cls, seed: int, most: int) -> Self:
        """Draw a crowd of at most so many operations."""
        rng = Random(seed)  # noqa: S311 - chance, not secrets
        trouble = CROWD_TROUBLES[seed % len(CROWD_TROUBLES)]
        # Who goes first is looked at where nothing but the limits decides it, for long enough.
        is_ranked = trouble in RANKED and rng.random() < _RANKED_PART
        # How long retries wait is looked at where nothing else happens to them.
        more = [Bound.BUDGET] * 2 if trouble is Trouble.NONE else []
        bound = Bound.NONE if trouble is Trouble.DEPLOYED else rng.choice([*Bound, *more])
        dependency = rng.choice([SAFE, SAFE, UNSAFE, OF_HANDLER])
        if trouble is Trouble.UNHEARD:
            dependency = rng.choice([SAFE, UNSAFE, UNSAFE, OF_HANDLER])
        if is_ranked:
            bound, dependency = rng.choice(IN_ONE_LINE), rng.choice([SAFE, UNSAFE])
        if trouble in _WITH_CIRCUIT and bound in {Bound.NONE, Bound.BUDGET}:
            bound = rng.choice(IN_ONE_LINE)
        if dependency == OF_HANDLER and bound is Bound.NONE and trouble is not Trouble.DEPLOYED:
            bound = Bound.RATE
        if bound is Bound.BUDGET or trouble is Trouble.REPLAYED:  # Who may send once only does not retry.
            dependency = SAFE
        has_rate = bound in {Bound.RATE, Bound.BOTH}
        has_places = bound in {Bound.CONCURRENCY, Bound.BOTH, Bound.PER_KEY}
        few = 2 if is_ranked else 4
        rate = rng.choice([1, 2, 3, 5, 10][:few])
        at_once = rng.choice((_SLOTS if bound is Bound.CONCURRENCY else [1, 2, 4, 5])[:few])
        mean: float = rng.choice([1, 2, 4] if is_ranked else [0.5, 1, 2, 4])
        workers, places = rng.choice([1, 2, 3]), _MANY_PLACES if is_ranked else rng.choice([1, 2, 5, 100])
        if bound is Bound.NONE:  # Only what waits for minutes in the queue may be taken for lost.
            mean, (workers, places) = 20, rng.choice([(1, 1), (2, 1), (2, 2), (1, 5)])
        if bound is Bound.BUDGET:  # Nothing but it holds retries up, which come before copies show the burst.
            mean, places = 0.2, 100
        if trouble is Trouble.DEPLOYED:  # Calls outlast the time that the new workers have for theirs.
            mean, places = 200, 100
        is_calm = trouble in RANKED and dependency != OF_HANDLER and places == _MANY_PLACES
        attempt_seconds = _SOON_OVER if is_calm and at_once >= LEAST_SHARED else 30.0
        per_second = min(
            [workers * places / mean]
            + ([rate] if has_rate else [])
            + ([at_once / mean] if has_places else [])
        )
        backlog_seconds = 300 if bound is Bound.NONE else max(50, most)
        return cls(
            operations=max(12, min(most, int(per_second * backlog_seconds))),
            workers=workers,
            places=places,
            bound=bound,
            rate_per_second=rate if has_rate else 0.0,
            max_concurrency=at_once if has_places else 0,
            per_key=1 if bound is Bound.PER_KEY else 0,
            keys=rng.choice(_keys_for(bound, is_ranked=is_ranked)),
            ratio=rng.choice([0.2, 1.0]) if bound is Bound.BUDGET else 0.0,
            call_seconds=(0.8 * mean, 1.2 * mean),
            attempt_seconds=280.0 if trouble is Trouble.DEPLOYED else attempt_seconds,
            dependency=dependency,
            trouble=trouble,
            part=rng.choice([0.5, 0.9, 1.0]),
            together=rng.random() < 0.5,
            is_quick=rng.random() < 0.7 or is_ranked,
            in_steps=rng.random() < 0.5,
            has_flood=rng.random() < 0.5 and bound is not Bound.NONE and workers * places <= _MOST_FLOODED,
            has_key_circuits=rng.random() < 0.5 and bound is not Bound.BUDGET,
            falls_back=rng.random() < 0.5 and dependency == SAFE and bound is not Bound.BUDGET,
            is_debounced=rng.random() < 0.2 and bound is not Bound.BUDGET and not is_ranked,
            has_priorities=rng.random() < 0.5 or is_ranked,
            rate_per_key=rng.choice([0.0, 0.5, 0.8]) / mean if bound is Bound.PER_KEY else 0.0,
            deadline_part=rng.choice([0.3, 0.6, 0, 0, 0, 0, 0, 0])
            if (has_rate or has_places) and not is_ranked
            else 0.0,
            lanes=rng.choice([0, 0, _LANES]) if bound is not Bound.BUDGET else 0,
            is_weighted=has_rate or has_places,
            is_held=rng.random() < 0.5,
            # Who asks needs places of the hub as well, and no more time than an attempt has.
            is_polled=rng.random() < 0.5 and mean <= _SOON and places == _MANY_PLACES and dependency == SAFE,
            is_asked=rng.random() < _ASKED_PART and dependency == UNSAFE,
            refuses=rng.random() < 0.5 and trouble is Trouble.HELD and dependency != OF_HANDLER,
        ).alone()

    def alone(self) -> Self:
        """Return it with those of its features only that go together."""
        has_weights = self.is_weighted and self.keys == _FEW_KEYS
        # Who goes first is looked at where nothing else decides it.
        lanes = 0 if self.is_debounced or has_weights or self.has_priorities else self.lanes
        return replace(
            self, lanes=lanes, is_weighted=has_weights, is_held=self.is_held and self.deadline_part > 0
        )

    @property
    def is_restarted(self) -> bool:
        """Whether workers die."""
        return self.trouble in {Trouble.RESTARTED, Trouble.RESTARTED_AGAIN}

    @property
    def may_be_in_doubt(self) -> bool:
        """Whether operations may end ambiguous: what they have sent may not be sent again."""
        if self.is_restarted or self.trouble in WITHOUT_ANSWER:
            return self.dependency != SAFE and not self.is_asked
        return self.dependency == OF_HANDLER and not self.in_steps

    @property
    def limited(self) -> str:
        """The dependency that has the limits."""
        return SAFE if self.dependency == OF_HANDLER else self.dependency

    @property
    def renamed(self) -> str:
        """Its name when it has been renamed."""
        return f"{LATER}{self.limited}"

    @property
    def limiters(self) -> tuple[str, ...]:
        """The dependencies that have limits."""
        return (self.limited, SPARE) if self.falls_back else (self.limited,)

    @property
    def at_once(self) -> int:
        """How many calls may be under way; those of a hub without limits where there are none."""
        places = self.workers * self.places
        return min(self.max_concurrency, places) if self.max_concurrency else places

    @property
    def pool(self) -> int:
        """How many calls may be under way before the workers' shares are in use.

        A worker leaves its share free beside others until what they began before it came must have ended.
        """
        shared = LimitSettings(self.max_concurrency, self.rate_per_second).shared_concurrency
        return self.max_concurrency - shared

    @property
    def joined_seconds(self) -> float:
        """From the first attempts until all workers use their shares.

        The others hear of a worker when its first calls end, and it sees that when the next ones come.
        """
        return self.attempt_seconds + 2 * self.call_seconds[1] if self.workers > 1 else 0.0

    @property
    def drained_seconds(self) -> float:
        """How long the limits and the places of the hub let all of them take."""
        unpaid = self.operations * (1 - self.ratio) / MINIMUM_PER_SECOND if self.ratio else 0.0
        return max(unpaid, self.seconds_for(self.operations, sum(self.call_seconds) / 2, 0.0))

    @property
    def budget(self) -> RetryBudgetSettings:
        """The dependency's retry budget."""
        return RetryBudgetSettings(self.ratio, MINIMUM_PER_SECOND)

    @property
    def place_seconds(self) -> float:
        """The longest that an attempt keeps a place of the hub.

        A handler that has sent what may be sent once only waits for its step in place.
        """
        waits_in_place = self.dependency == OF_HANDLER and not self.in_steps
        return self.attempt_seconds if waits_in_place else self.call_seconds[1]

    @property
    def retry_seconds(self) -> float:
        """The wait before a retry: where a budget counts, less than a copy of the budget may be old."""
        return 0.3 if self.ratio else 5.0

    @property
    def deadline_seconds(self) -> float:
        """From when they are due until the deadline of those that have one; 0 for no deadlines.

        Who begins at once has time for a call: probes that are cut off would keep the circuit open.
        """
        least_seconds = 2 * self.call_seconds[1] * (self.deadline_part > 0)
        return max(least_seconds, self.deadline_part * self.drained_seconds)

    @property
    def late_seconds(self) -> float:
        """So long messages may be under way when all have ended."""
        return 5.0 if self.is_quick else 20.0

    @property
    def is_full(self) -> bool:
        """Whether attempts wait for the places of the hub, and not only for a rate."""
        # Every handler has called `OF_HANDLER` before it asks for a turn.
        # An attempt keeps its place while it waits for its turn, too.
        wanted = self.rate_per_second * (sum(self.call_seconds) / 2 + DOOR_SECONDS)
        wanted = max(wanted, self.operations * (self.dependency == OF_HANDLER))
        return self.has_flood or self.workers * self.places <= wanted

    @property
    def is_queued(self) -> bool:
        """Whether attempts that may begin by the limits wait for the places of the hub."""
        return self.is_full or self.workers * self.places <= self.max_concurrency

    @property
    def late_turns(self) -> float:
        """How many seconds of reserved turns may come together: timers are late, or the queue is full."""
        return 1.0 if self.is_quick and not self.is_full else 3.0

    @property
    def slow_seconds(self) -> float:
        """So long a slow call takes at least; 0 where none is slow."""
        return 4 * self.call_seconds[1] if self.trouble is Trouble.SLOWED else 0.0

    def config(
        self,
        *,
        attempt_seconds: float | None = None,
        without: str = "",
        part: float = 1.0,
        is_renamed: bool = False,
    ) -> Config:
        """Return the file: with other times for attempts, without a dependency, or a part of the limits.

        A part of 0 is none of them. Where it is renamed, what is limited has another name.
        """
        lines = [
            f"[defaults.timeouts]\nattempt_seconds = {attempt_seconds or self.attempt_seconds}",
            f"deadline_seconds = 36000\n[defaults.retry_budget]\nratio = {self.ratio}",
            f"minimum_per_second = {MINIMUM_PER_SECOND}",
            f"[defaults.circuit]\nminimum_calls = {1_000 if self.ratio else 5}",
            "window_seconds = 20\nbreak_seconds = 20",
            f"unauthorized_calls = {UNAUTHORIZED_CALLS}",
            f"by = '{'limit_key' if self.has_key_circuits else ''}'",
            f"[defaults.retry]\nstrategy = 'fixed'\ninitial_seconds = {self.retry_seconds}",
            "max_attempts = 50\nhold_seconds = 86400",
            f"on_exhausted = '{'hold' if self.is_held else 'dead_letter'}'",
        ]
        for name in (SAFE, UNSAFE, OF_HANDLER, NEIGHBOUR, *([SPARE] if self.falls_back else [])):
            if name == without:
                continue
            keys = [self._limits(part)] if name in self.limiters and part else []
            keys += [] if name in DEDUPLICATING else ['idempotency = { header = "" }']
            keys += self._keys_of_limited() if name == self.limited else []
            keys += [f'was = ["{name}"]'] if is_renamed and name == self.limited else []
            title = self.renamed if is_renamed and name == self.limited else name
            lines += [f'[dependencies.{title}]\nbase_url = "http://{name}/v1"', *keys]
        return parse_config("\n".join(lines), {})

    def _keys_of_limited(self) -> list[str]:
        """Return the keys of what is limited beside its limits."""
        # Few slow calls open it: the limits let them end one by one.
        slow = f"slow_call_seconds = {self.slow_seconds}, slow_call_ratio = 0.2"
        is_it = {
            f"circuit = {{ minimum_calls = 3, window_seconds = 200, {slow} }}": self.slow_seconds > 0,
            f'fallback = "{SPARE}"': self.falls_back,
            _POLL: self.is_polled,
            _LOOKUP: self.is_asked,
            'when_open = "refuse"': self.refuses,
            _AUTH: self.trouble is Trouble.REVOKED,
            _RULES: self.trouble is Trouble.WORDED,
        }
        return [key for key, has_it in is_it.items() if has_it]

    def _limits(self, part: float = 1.0) -> str:
        of_key = f"max_concurrency = {self.per_key}, rate_per_second = {self.rate_per_key}"
        per_key = f", per_key = {{ {of_key} }}" if self.per_key else ""
        at_once, rate = ceil(self.max_concurrency * part), self.rate_per_second * part
        limits = f"max_concurrency = {at_once}, rate_per_second = {rate}"
        weights = f", weights = {{ {HEAVY} = {WEIGHT} }}" if self.is_weighted else ""
        return f"limits = {{ {limits}{per_key}{weights} }}"

    def seconds_for(self, calls: int, mean_seconds: float, handover_seconds: float) -> float:
        """Return how long so many calls take at the limits and with the places of the hub."""
        at_once = self.workers * self.places
        times = [calls * mean_seconds / at_once]
        if self.rate_per_second:
            times.append(calls / self.rate_per_second)
        if self.max_concurrency:
            slot_seconds = mean_seconds + handover_seconds
            first = min(calls, self.pool * self.joined_seconds / slot_seconds)
            times.append(slot_seconds * (first / self.pool + (calls - first) / self.max_concurrency))
        if self.per_key and self.keys:
            of_key = -(-calls // self.keys)
            times.append(of_key * (mean_seconds + handover_seconds) / self.per_key)
        if self.rate_per_key and self.keys:
            times.append(-(-calls // self.keys) / self.rate_per_key)
        return max(times)

    def __str__(self) -> str:
        limits = "no limits" if self.bound is Bound.NONE else self._limits()
        limits = f"a budget of {self.ratio}" if self.ratio else limits
        circuits = ", a circuit for each key" if self.has_key_circuits and self.keys else ""
        steps = " in steps" if self.dependency == OF_HANDLER and self.in_steps else ""
        return (
            f"{self.operations} operations, {self.dependency}{steps}, {self.trouble}, {limits}, "
            f"{self.keys} keys{circuits}, {self.workers} workers of {self.places} places, "
            f"calls of {self.call_seconds[0]} to {self.call_seconds[1]} s"
            f"{', a flood' if self.has_flood else ''}"
            f"{', a fallback' if self.falls_back else ''}{', debounced' if self.is_debounced else ''}"
            f"{', by priority' if self.has_priorities else ''}{f', {self.lanes} lanes' if self.lanes else ''}"
            f"{f', deadlines after {self.deadline_seconds:.0f} s' if self.deadline_part else ''}"
            f"{', held' if self.is_held else ''}{', polled' if self.is_polled else ''}"
            f"{', asked' if self.is_asked else ''}"
            f"{', refused while open' if self.refuses else ''}"
            f"{', together' if self.together else ''}{', a quick hub' if self.is_quick else ''}"
        )
