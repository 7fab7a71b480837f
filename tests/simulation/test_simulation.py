"""The whole app in simulated worlds, where nothing goes smoothly, held to what must be true in each of them.

The world: dependencies that refuse, err, hang, throttle and recover; workers that die between any two
effects, and then lose the signals of an entity batch, fail its calls, and fail what they ran or let it begin
again; activities that run twice at once; turns, calls of entities, signals, events, messages and submissions
that are repeated; entity messages and events that overtake each other or come minutes late; limits of one
attempt at once; handlers with remembered steps, at once and one after the other; answers that are stored
apart, and steps of sagas that refer to them; storage and a task hub that fail before or after they did
what was asked, are slow, are full, or refuse something for good; turns whose messages go out and whose
history does not commit; starts that race; timers that fire early; clocks that differ; inputs of a later
version; a rollback to the last release's orchestrators, and a deploy of today's.
People submit, cancel, retry at once, replay one by one and in bulk, archive and restore, send what is
malformed, use a key for something else, come again when the history is purged, start batches and sagas, and
open and close circuits. After an hour (in small worlds minutes) the storm is over, what is dead is
replayed once more, and everything must come to rest. In some worlds the keys are used again a day later, for
other operations.

What holds then, each a function of its own:

 1. ends_once                    an accepted operation ends in one end state, and runs once but for replays
 2. one_effect_per_key           one key for one operation, and one effect of it where it is deduplicated
 3. nothing_unsafe_twice         what may have taken effect is not sent again where it is not deduplicated
 4. ambiguity_is_real            said only of what was sent, or whose execution was repeated or died
 5. attempts_leave_nothing       an attempt that is over has no call under way
 6. attempts_are_counted         the count is that of attempts that left this side, within the policy
 7. no_early_attempt             none before its retry instant or before Retry-After
 8. nothing_after_the_deadline   no attempt but the first begins after the deadline
 9. events_arrive                every event of a success at least once, under one id; none of anything else
10. events_are_complete          as many as were asked for; a handler's writes are there just for successes
11. dead_letters_are_kept        one for every run that ended so; the last one of an operation is open
12. lineage_is_recorded          what became of a replay is written down at what was replayed
13. messages_are_kept            a message that is no operation is exactly one dead letter
14. lists_agree                  the lists and counts of dead letters say what the dead letters say
15. circuits_probe_within_limits a half-open circuit never lets more probe than it may
16. reports_count_once           a circuit counts a report once, however often it comes
17. slots_are_given_back         a slot is lent to one, not to a request that comes again, and free at rest
18. attempts_are_within_limits   never are more attempts under way than the dependency's limit
19. refusals_are_final           what storage refuses for good is a dead letter that says why
20. answers_are_true             who waits for an end is answered with one that the operation has
21. records_agree                the record of a key answers what the last run ended with
22. records_expire               and goes when its time is over
23. batches_are_whole            every item ended as its operation did, never too many at once
24. sagas_are_undone             a step follows success only; what was done is undone in reverse
25. references_are_filled_in     a step that refers to an answer is sent what that was
26. index_has_all                what has ended is in the index once upkeep ran
27. nothing_is_left              nothing runs, nothing is under way, nothing is noted as still to be done
28. nothing_unexpected           no orchestration failed, a repeated turn is the same, no error went unheard

Small worlds have one to four operations and minutes of storm. Their turns run on a light context; the SDK
replays some of them from the beginning, and both must ask for the same. In every eighth world the last
release's orchestrators run for a while in between.

Defects that the app once had are brought back, to see how soon small worlds show them: three counts each,
from the seeds 0, 100,000 and 200,000.

======================  ==============================================  ======================
defect                  what happens                                    worlds until it shows
======================  ==============================================  ======================
unknown field           an input of a later version fails the run       1, 3, 2
start race              two first posts of one key both get 202         3, 6, 5
refusal retried         what storage refuses for good is tried for ever 17, 23, 16
one run number          a key used again loses its writes and events    8, 88, 10
early timer             a retry comes up to a second early              4, 52, 116
start not noted         a start without an answer is in no list         166, 64, 2
step left behind        a failed step leaves the others running         6, 4, 14
step twice              a step that must not be repeated is             25, 2, 13
result not read         a saga looks at what is stored apart in vain    63, 45, 30
slot lent again         a request that comes again takes a slot         39, 23, 3
marker without token    a lost answer of storage looks like a call      over 900, 679, 25
another kind            a lost turn's timer takes the place of a call   232, over 900, 450
======================  ==============================================  ======================

A seed is a world: `python -m tests.simulation --seed 7` plays one again, `--log` prints what happened in it,
`--seeds 100` plays others, and `--small` plays worlds of one to four operations and of minutes. When
something does not hold, the command looks for the smallest and calmest such world of that seed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from secrets import randbelow
from typing import Any, Final
from unittest.mock import patch

import pytest
from azure.core.exceptions import ServiceResponseError

from durable_retry import clock, executor_guard
from durable_retry.engine.base.instants import to_rfc3339
from durable_retry.engine.circuit import transitions
from durable_retry.engine.circuit.reporters import Reporters
from durable_retry.engine.limits import limiter
from durable_retry.engine.limits.limiter import Limiter, SlotLease
from durable_retry.engine.limits.settings import LimitSettings
from durable_retry.engine.operations import idempotency
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.services.attempt import http_request as http_attempt
from durable_retry.services.attempt.call import Calls
from durable_retry.settings.configuration import APP_ROOT
from durable_retry.stores.operations import notes as operation_notes
from durable_retry.stores.operations import writes as operation_writes
from durable_retry.stores.operations.writes import Marked
from durable_retry.stores.storage import contents, tables
from durable_retry.stores.task_hub import TaskHub
from orchestrators import run
from orchestrators.run import Run
from tests.long_checks import SAMPLE_SEED
from tests.simulation import __main__ as simulation
from tests.simulation import hub
from tests.simulation.invariants import INVARIANTS, broken
from tests.simulation.shrink import found_in, shrunk
from tests.simulation.story import simulated
from tests.simulation.turns import LightContext
from tests.simulation.world import CROWDED_EVERY, Chances, small_size

OPERATIONS: Final = 150
FEW: Final = 40


@dataclass(frozen=True)
class Defect:
    """A defect that the app had and that no test saw.

    Attributes:
        bound: How many small worlds may pass before one shows it: several times the number that it took.
        patch: Brings it back.
    """

    name: str
    bound: int
    patch: Callable[[], Any]


async def _marker_without_token(run_id: str, attempt: int, now: datetime) -> Marked | None:
    keys = operation_writes._keys_of_marker(run_id, attempt)
    row = {**keys, "marked_at": to_rfc3339(now)}
    try:
        is_new = await tables.insert_if_absent(operation_writes.TABLE, row)
    except ServiceResponseError:  # The storage client asks once more.
        is_new = await tables.insert_if_absent(operation_writes.TABLE, row)
    if is_new:
        return None
    known = await tables.read(operation_writes.TABLE, keys["PartitionKey"], keys["RowKey"])
    text = "" if known is None else contents.unpacked("outcome", known)
    return Marked(json.loads(text) if text else None)


async def _is_over(_calls: Calls) -> None:
    return None


async def _as_it_is(result: Any) -> Any:
    return result


def _is_never(*_given: Any) -> bool:
    return False


_resume: Final = Run.resume


def _refuses_unknown_fields(ctx: Any, input_: Mapping[str, Any]) -> Run:
    if "from_a_later_version" in input_["operation"]:
        raise TypeError("unexpected keyword argument")
    return _resume(ctx, input_)


DEFECTS: Final = (
    Defect("one run number", 100, lambda: patch.object(idempotency, "_run_after", lambda *_: 1)),
    Defect("unknown field", 30, lambda: patch.object(Run, "resume", _refuses_unknown_fields)),
    Defect(
        "marker without token",
        2_000,
        lambda: patch("durable_retry.services.attempt.attempt.insert_marker", _marker_without_token),
    ),
    Defect("start race", 100, lambda: patch.object(TaskHub, "starts_are_atomic", new=True)),
    Defect(
        "another kind", 1_500, lambda: patch.object(executor_guard, "_is_of_another_kind", lambda *_: False)
    ),
    Defect("early timer", 200, lambda: patch.object(run, "fired_early", lambda *_: False)),
    Defect("slot lent again", 200, lambda: patch.object(limiter, "is_repeated", _is_never)),
    Defect("step left behind", 500, lambda: patch.multiple(Calls, finish_steps=_is_over, end_steps=_is_over)),
    Defect("step twice", 500, lambda: patch.object(Calls, "_is_repeatable", lambda *_: True)),
    Defect("result not read", 500, lambda: patch("durable_retry.services.workflows.whole_result", _as_it_is)),
    Defect("start not noted", 500, lambda: patch.object(operation_notes, "_note_unanswered", _is_never)),
    Defect("refusal retried", 300, lambda: patch.object(tables, "_raise_refusal", lambda *_: None)),
)

ROUGH: Final = range(3, 60, 3)
"""Worlds in which trouble is thrice as likely."""

SMALL_WORLDS: Final = range(1_000, 1_040)

CROWDED: Final = range(1_127 * CROWDED_EVERY, 1_147 * CROWDED_EVERY, CROWDED_EVERY)
"""Worlds in which everybody wants the one slot of a dependency."""

COMPARED_WORLDS: Final = range(2_000, 2_012)

SAMPLE: Final = os.environ.get(SAMPLE_SEED)

WORLDS_DRAWN: Final = 10_000 if SAMPLE is None else 1_000

STRETCHES: Final = 10

FIRST: Final = randbelow(simulation.SEEDS) if SAMPLE is None else int(SAMPLE) * WORLDS_DRAWN
"""The seed of the first world that is drawn."""

FRESH: Final = randbelow(simulation.SEEDS)
"""Another world in every run; when it fails, its number is in what is printed."""


@dataclass(frozen=True)
class Mistake:
    """A mistake that somebody could make, and the invariant that has to see it.

    Attributes:
        invariant: Its name.
        patch: Makes the mistake.
    """

    invariant: str
    patch: Callable[[], Any]


def _key_of_each_attempt(plan: Any, key: str) -> dict[str, str]:
    return {"Idempotency-Key": f"{key}-{plan.number}"}


async def _says_that_it_was_kept(*_given: Any) -> str:
    return "dl-nowhere"


async def _does_nothing(*_given: Any) -> None:
    return None


async def _sends_nothing(_hub: TaskHub, _delivery: Any, _event: Any, number: int) -> AttemptOutcome:
    return AttemptOutcome(number=number, started_at=clock.now(), duration_ms=0.0)


def _is_kept(state: Limiter, _lease: SlotLease) -> Limiter:
    return state


_MORE_SLOTS: Final = property(lambda _settings: -2)
"""None of a limit is shared out, and the limiter has two slots more than it."""


def _run_without_its_replay(operation: OperationInput) -> str:
    return operation.operation_id


MISTAKES: Final = (
    Mistake("one_effect_per_key", lambda: patch.object(http_attempt, "own_headers", _key_of_each_attempt)),
    Mistake("nothing_unsafe_twice", lambda: patch.object(http_attempt, "needs_marker", lambda _plan: False)),
    Mistake(
        "no_early_attempt", lambda: patch.object(http_attempt, "parse_retry_after", lambda *_, **__: None)
    ),
    Mistake("events_arrive", lambda: patch("durable_retry.services.outbox.deliver", _sends_nothing)),
    Mistake(
        "dead_letters_are_kept",
        lambda: patch("durable_retry.services.operations.ends.keep_operation", _says_that_it_was_kept),
    ),
    Mistake("circuits_probe_within_limits", lambda: patch.object(transitions, "probes_free", lambda *_: 1)),
    Mistake("reports_count_once", lambda: patch.object(Reporters, "has_counted", _is_never)),
    Mistake("slots_are_given_back", lambda: patch.object(Limiter, "without", _is_kept)),
    Mistake(
        "attempts_are_within_limits", lambda: patch.object(LimitSettings, "shared_concurrency", _MORE_SLOTS)
    ),
    Mistake(
        "records_agree", lambda: patch.object(OperationInput, "owner", property(_run_without_its_replay))
    ),
    Mistake("lists_agree", lambda: patch("durable_retry.stores.dead_letters.index.list_open", _does_nothing)),
    Mistake("nothing_unexpected", lambda: patch.object(Run, "now", property(lambda _run: clock.now()))),
)


@pytest.mark.parametrize(
    ("seed", "operations"),
    [
        pytest.param(2, FEW, id="2", marks=pytest.mark.long),
        pytest.param(3, OPERATIONS, id="3", marks=pytest.mark.long),
        pytest.param(FRESH, OPERATIONS, id="fresh", marks=pytest.mark.long),
    ],
)
def test_everything_holds_in_a_world_where_nothing_goes_smoothly(seed: int, operations: int) -> None:
    again = f"python -m tests.simulation --seed {seed} --operations {operations}"
    assert broken(simulated(seed, operations)) == {}, f"play it again with: {again}"


def test_everything_holds_in_small_worlds() -> None:
    for seed in SMALL_WORLDS:
        again = f"python -m tests.simulation --small --seed {seed}"
        assert broken(simulated(seed, small_size(seed))) == {}, f"play it again with: {again}"


def test_limits_hold_in_crowded_worlds() -> None:
    for seed in CROWDED:
        again = f"python -m tests.simulation --small --seed {seed}"
        assert broken(simulated(seed, small_size(seed))) == {}, f"play it again with: {again}"


def test_light_turns_ask_for_what_replayed_turns_ask_for() -> None:
    with patch.object(hub, "_REPLAYED", 1.0):
        for seed in COMPARED_WORLDS:
            story = simulated(seed, small_size(seed))
            assert not story.world.mistakes
            assert story.app.hub.compared > 0


def test_a_light_turn_that_asks_for_something_else_is_seen() -> None:
    unlike = patch.object(LightContext, "new_uuid", lambda _context: "another")
    with patch.object(hub, "_REPLAYED", 1.0):
        assert simulated(COMPARED_WORLDS[0], 1, unlike).world.mistakes


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.invariant)
def test_a_mistake_in_the_app_is_seen(mistake: Mistake) -> None:
    worlds = (simulated(seed, FEW, mistake.patch()) for seed in ROUGH)
    assert any(mistake.invariant in broken(world) for world in worlds)


@pytest.mark.long
def test_a_failure_shrinks_to_what_it_needs() -> None:
    mistake = patch("durable_retry.services.operations.ends.keep_operation", _says_that_it_was_kept)
    worlds = (found_in(seed, small_size(seed), mistake) for seed in SMALL_WORLDS)
    found = next(each for each in worlds if each is not None)
    smallest = shrunk(found, mistake)
    assert smallest.invariant == found.invariant
    assert smallest.operations <= found.operations
    assert len(smallest.without) > len(fields(Chances)) / 2
    assert smallest.lines
    assert found_in(found.seed, smallest.operations, mistake, without=smallest.without) == smallest


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("stretch", range(STRETCHES))
def test_everything_holds_in_ten_thousand_small_worlds(stretch: int) -> None:
    worlds = WORLDS_DRAWN // STRETCHES
    first = FIRST + stretch * worlds
    sys.stdout.write(f"stretch {stretch} begins with the seed {first}\n")
    for seed in range(first, first + worlds):
        found = found_in(seed, small_size(seed))
        assert found is None, shrunk(found)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_of_before_is_found_again(defect: Defect) -> None:
    worlds = (broken(simulated(seed, small_size(seed), defect.patch())) for seed in range(defect.bound))
    assert any(worlds)


@pytest.mark.long
def test_a_seed_is_the_same_world_in_any_process() -> None:
    def digest(hash_seed: str) -> str:
        options = ["--digest", "--seed", "6", "--operations", "9"]
        run = subprocess.run(
            [sys.executable, "-m", "tests.simulation", *options],
            cwd=APP_ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        return run.stdout

    assert digest("1") == digest("2")


def test_a_world_does_not_depend_on_those_before_it() -> None:
    digests = {simulated(seed, small_size(seed)).world.digest() for seed in [CROWDED[0]] * 3}
    assert len(digests) == 1


def test_every_invariant_is_listed_above() -> None:
    listed = [line.split()[1] for line in (__doc__ or "").splitlines() if line[:2].strip().isdigit()]
    assert listed == [invariant.__name__ for invariant in INVARIANTS]
