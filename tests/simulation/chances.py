"""How likely which trouble is in a world, and how large worlds are; both follow from the seed."""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Final, Self

_ROUGH: Final = 3
_LARGE: Final = 1
CROWDED_EVERY: Final = 7
WATCHED_EVERY: Final = 9
CALLING_EVERY: Final = 5
_CALLING: Final = 2
REPORTING_EVERY: Final = 6
_REPORTING: Final = 4
PATIENT_EVERY: Final = 5
_PATIENT: Final = 3
ORDERED_EVERY: Final = 5
_ORDERED: Final = 1
BOUNCING_EVERY: Final = 5
_BOUNCING: Final = 4
KEYED_EVERY: Final = 10
POLLED_EVERY: Final = 11
_POLLED: Final = 5
SWAPPING_EVERY: Final = 11
_SWAPPING: Final = 9
FALLING_EVERY: Final = 10
_FALLING: Final = 5
FREEZING_EVERY: Final = 8
_FREEZING: Final = 3

_LOST: Final = 0.03


@dataclass(frozen=True, kw_only=True)
class Chances:
    """How likely trouble is, for each effect or message.

    Attributes:
        crash: The worker dies at a point.
        storage_fails: A table answers with an error, before or after it did what was asked.
        hub_fails: The task hub does, to a client.
        twice: An activity runs on two workers at once, because the first one was slow to say that it lives.
        turn_lost: A turn is made and not committed.
        doubled: A message arrives twice.
        late: A message arrives minutes later.
        uncommitted: A turn's messages go out and its history does not commit; it runs again later, by another
            clock. So does Azure Storage when the row's lease is lost.
        called_twice: The call of an entity is delivered twice.
        unstored: An entity's answer goes out and its state is not stored; the call comes again up to half a
            minute later. So does Azure Storage, which sends messages before it writes a state.
        dead_batch: The worker dies that runs an entity: its awaited call fails, a signal is lost, and nothing
            of it is stored.
        failed: The activities of a dead worker have failed. Otherwise they begin again, as when a host dies.
        early: A timer fires up to a second early: a queue hides a message for whole seconds.
        skewed: A worker's clock is up to a second wrong, for all of its life. In every fourth world
            only, since by one clock things hold to the millisecond.
        refused: An event for an ended instance is refused (FAILED_PRECONDITION) rather than dropped.
        raced: A start looks first and writes later; when another was first, it is dropped in silence.
        slow: A table's request takes seconds, up to its timeout.
        full: The storage account begins to refuse writes, for up to a minute.
        newer: An input or a state was written by a later version, before a rollback: it has an unknown field.
        again: Callers use their keys again, for other operations, after the records have expired.
        hasty: A person opens a circuit and closes it sooner than the clocks of two machines differ.
        large: Every operation counts as a large one, which attempts read from the hub. In every fourth world.
        wordy: A dependency answers with 6 KB.
        crowded: All callers come within seconds and want the same dependency, which has one slot and a rate.
            In every seventh world.
        watched: The app's alerts are checked every twenty seconds. In every ninth world.
        calling: An orchestrator of the app calls operations. In every fifth world.
        reporting: Handlers report progress, and go on from what an earlier attempt reported. In every sixth
            world; in half of them storage works, so that nothing reported is lost.
        patient: Operations begin later, and people pause and resume them; half of the pauses arrive twice. In
            every fifth world.
        ordered: Operations have order keys. In every fifth world.
        keyed: Most operations are of two customers of a dependency that has a circuit for each of them, and
            refuses the credential of one for most of the storm. In every tenth world; in half of them the hub
            is as it should be.
        polled: Most operations are of a dependency that accepts with 202, and is polled. In every eleventh
            world, but for crowded and keyed ones.
        swapping: Most operations are handlers that change one row by compare-and-swap. In every eleventh
            world, but for crowded ones.
        falling: Most operations are of a dependency that has a fallback, which does not deduplicate. In every
            tenth world, but for polled and swapping ones.
        freezing: Somebody holds every dependency, and thaws them. In every eighth world; its hub always
            answers.
        lost: The message of a timer, an activity or an entity's call is lost, for good. In worlds of
            `losing` alone, where `watch` runs.
        bouncing: Operations have one of two debounce keys, and somebody starts or cancels those that wait. In
            every fifth world, but for those in which handlers report progress.
    """

    crash: float = 0.002
    storage_fails: float = 0.002
    hub_fails: float = 0.003
    twice: float = 0.01
    turn_lost: float = 0.01
    doubled: float = 0.05
    late: float = 0.03
    uncommitted: float = 0.01
    called_twice: float = 0.05
    unstored: float = 0.003
    dead_batch: float = 0.02
    failed: float = 0.5
    early: float = 0.1
    skewed: float = 0.5
    refused: float = 0.5
    raced: float = 0.5
    slow: float = 0.002
    full: float = 0.0005
    newer: float = 0.1
    again: float = 0.25
    hasty: float = 0.5
    large: float = 1.0
    wordy: float = 0.2
    crowded: float = 1.0
    watched: float = 1.0
    calling: float = 1.0
    reporting: float = 1.0
    patient: float = 1.0
    ordered: float = 1.0
    bouncing: float = 1.0
    keyed: float = 1.0
    polled: float = 1.0
    swapping: float = 1.0
    falling: float = 1.0
    freezing: float = 1.0
    lost: float = 0.0

    @classmethod
    def losing(cls, seed: int, without: Collection[str] = ()) -> Self:
        """Return those of a seed, where messages are lost as well."""
        return replace(cls.of(seed, without), lost=_LOST)

    @classmethod
    def of(cls, seed: int, without: Collection[str] = ()) -> Self:
        """Return those of a seed: every third world is a rough one.

        Args:
            seed: Of the world.
            without: Names of what never happens.
        """
        without = {
            *without,
            *(["skewed"] if seed % 4 else []),
            *([] if seed % 4 == _LARGE else ["large"]),
            *([] if seed % CROWDED_EVERY == 0 else ["crowded"]),
            *([] if seed % WATCHED_EVERY == 0 else ["watched"]),
            *([] if seed % CALLING_EVERY == _CALLING else ["calling"]),
            *(["bouncing"] if seed % REPORTING_EVERY == _REPORTING else ["reporting"]),
            *([] if seed % PATIENT_EVERY == _PATIENT else ["patient"]),
            *([] if _is_ordered(seed) else ["ordered"]),
            *([] if seed % BOUNCING_EVERY == _BOUNCING else ["bouncing"]),
            # The alerts that worlds look at are those of dependencies.
            *(["watched"] if seed % KEYED_EVERY == 0 else ["keyed"]),
            *([] if _is_polled(seed) else ["polled"]),
            *([] if _is_swapping(seed) else ["swapping"]),
            *([] if _is_falling(seed) else ["falling"]),
            *(["hub_fails", "crowded", "watched"] if seed % FREEZING_EVERY == _FREEZING else ["freezing"]),
            *(["hub_fails", "late", "unstored", "dead_batch"] if _has_steady_hub(seed) else []),
            *(["storage_fails", "full", "slow"] if seed % (2 * REPORTING_EVERY) == _REPORTING else []),
            # What is late at most says little of pauses, so in half of these worlds nothing is.
            *(["late", "crash", "turn_lost", "hub_fails"] if seed % (2 * PATIENT_EVERY) == _PATIENT else []),
        }
        rough = 1 if seed % 3 else _ROUGH
        usual = cls()
        chances = {each.name: getattr(usual, each.name) * rough for each in fields(cls)}
        chances["again"] = usual.again  # A second life is no trouble, and twice the work.
        chances["failed"] = usual.failed  # Otherwise nothing would begin again.
        return cls(**{name: 0.0 if name in without else chance for name, chance in chances.items()})

    @classmethod
    def calm(cls) -> Self:
        """Return those of a world where all is well."""
        return cls(**{each.name: 0.0 for each in fields(cls)})


def _has_steady_hub(seed: int) -> bool:
    return seed % (2 * KEYED_EVERY) == KEYED_EVERY


def _is_polled(seed: int) -> bool:
    return seed % POLLED_EVERY == _POLLED and bool(seed % CROWDED_EVERY and seed % KEYED_EVERY)


def _is_swapping(seed: int) -> bool:
    return seed % SWAPPING_EVERY == _SWAPPING and bool(seed % CROWDED_EVERY)


def _is_falling(seed: int) -> bool:
    return seed % FALLING_EVERY == _FALLING and not (_is_polled(seed) or _is_swapping(seed))


def _is_ordered(seed: int) -> bool:
    return seed % ORDERED_EVERY == _ORDERED


SMALL_OPERATIONS: Final = 10
"""A world of fewer operations is a small one: a storm of minutes, ten to twenty worlds in a second."""

_SIZES: Final = (1, 1, 1, 1, 2, 2, 3, 4)
_SERIES: Final = (3, 4)
_CROWDS: Final = (4, 5, 6)


def small_size(seed: int) -> int:
    """Return how many operations the small world of a seed has."""
    is_of_some = seed % BOUNCING_EVERY == _BOUNCING or seed % KEYED_EVERY in {0, _FALLING}
    sizes: tuple[int, ...] = _SERIES if is_of_some else _SIZES
    if seed % CROWDED_EVERY == 0 or _is_ordered(seed) or _is_swapping(seed):
        sizes = _CROWDS
    return Random(seed).choice(sizes)  # noqa: S311 - chance, not secrets


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a world is.

    Attributes:
        operations: Submitted one by one; batches, sagas and malformed messages come on top.
        storm_seconds: So long do dependencies flap; afterwards all of them are well.
        latest_seconds: No message is under way for longer.
        batch_items: The least and the most of a batch's good items.
        saga_steps: The most steps of a saga.
        calm_looks: Minutes in a row without anything under way, after which the world is at rest. Sweeps act
            after two to five minutes.
        operator_seconds: Between two looks at the dead letters.
        electrician_seconds: Between two circuits that are opened by hand.
        is_small: Whether its turns run on a light context; the collector rests meanwhile.
        is_quick: Whether no message and no timer is late by more than milliseconds.
    """

    operations: int
    storm_seconds: float = 3_600.0
    latest_seconds: float = 600.0
    batch_items: tuple[int, int] = (2, 8)
    saga_steps: int = 4
    calm_looks: int = 20
    operator_seconds: tuple[float, float] = (120, 400)
    electrician_seconds: tuple[float, float] = (300, 900)
    is_small: bool = False
    is_quick: bool = False

    @classmethod
    def of(cls, operations: int) -> Self:
        if operations >= SMALL_OPERATIONS:
            return cls(operations=operations)
        return cls(
            operations=operations,
            storm_seconds=200.0,
            latest_seconds=200.0,
            batch_items=(1, 3),
            saga_steps=2,
            calm_looks=7,
            operator_seconds=(40, 120),
            electrician_seconds=(60, 400),
            is_small=True,
        )


CALM: Final = Chances.calm()
