"""The whole app in simulated worlds, where nothing goes smoothly, held to what must be true in each of them.

The world: dependencies that refuse, err, hang, throttle and recover; workers that die between any two
effects, and then lose the signals of an entity batch, fail its calls, and fail what they ran or let it begin
again; activities that run twice at once; a dependency that refuses the credential of one of its customers,
each with a circuit; one that acts late, and is asked whether it has acted; one that accepts, and is polled;
turns, calls of entities, signals, events, messages and submissions that are repeated; entity messages and
events that overtake each other or come minutes late; limits of one attempt at once; handlers with remembered
steps, at once and one after the other, with heartbeats, and with one row that all of them change; answers
that are stored apart, and steps of sagas that refer to them; storage and a task hub that fail before or
after they did what was asked, are slow, are full, or refuse something for good; turns whose messages go out
and whose history does not commit; starts that race; timers that fire early; clocks that differ; inputs of a
later version. People submit, at once, for later or with a debounce key, cancel, pause and resume, hurry,
replay in bulk, archive and restore, send what is malformed, use a key for something else, come again when
the history is purged, start batches and sagas, restart sagas, open and close circuits, and hold and thaw
everything. After an hour (in small worlds minutes) the storm is over, what is dead is replayed once more, and
everything must come to rest. In some worlds the keys are used again a day later, for other operations.

What holds then, each a function of its own:

 1. ends_once                   an accepted operation ends in one end state, and runs once but for replays
 2. one_effect_per_key          one key for one operation, and one effect of it where it is deduplicated
 3. nothing_unsafe_twice        what may have taken effect is not sent again where it is not deduplicated
 4. asking_spares_a_second_effect  nor, where it can be asked, what shows to have taken effect
 5. accepted_work_is_followed   what was accepted with 202 is not sent again, and succeeds once it is done
 6. one_place_has_the_effect    an effect at the dependency or at its fallback, never at both
 7. ambiguity_is_real           said only of what was sent, or whose execution was repeated or died
 8. attempts_leave_nothing      an attempt that is over has no call under way
 9. attempts_are_counted        the count is that of attempts that left this side, within the policy
10. no_early_attempt            none before its retry instant or Retry-After, unless somebody ended that wait
11. not_now_is_not_never        no refusal that asks for a wait is final, nor a conflict with oneself
12. starts_are_kept             none before the start that the caller chose, unless somebody asked for it
13. quiet_is_waited_for         with a debounce key none before its wait is over, unless somebody asked for it
14. replaced_ones_do_not_run    who was replaced calls nobody, and a later one of the key replaced it
15. the_last_one_runs           the last one of a debounce key is not replaced, and none begins once it waits
16. keys_are_forgotten          nothing is left of a debounce key in the end
17. nothing_while_paused        once it shows that it is paused no attempt begins before somebody resumes it
18. pauses_are_noted            who looks at an operation that was paused sees that, and each pause once
19. holds_are_kept              what is to be held is given up only after it was held long enough
20. nothing_after_the_deadline  no attempt but the first begins after the deadline
21. steps_run_once              a step whose result is remembered is not run again
22. progress_is_kept            an attempt begins with what an earlier one reported, and not ahead of it
23. events_arrive               every event of a success at least once, under one id; none of anything else
24. events_are_complete         as many as were asked for; a handler's writes are there just for successes
25. swaps_commit_once           a compare-and-swap commits once, from the state that it names
26. failures_are_told           every dead letter by the events that were asked for, and none of anything else
27. dead_letters_are_kept       one for every run that ended so; the last one of an operation is open
28. lineage_is_recorded         what became of a replay is written down at what was replayed
29. stops_are_kept          a bulk replay that has stopped starts nothing before somebody resumes it
30. messages_are_kept           a message that is no operation is exactly one dead letter
31. lists_agree                 the lists and counts of dead letters say what the dead letters say
32. circuits_probe_within_limits a half-open circuit never lets more probe than it may
33. reports_count_once          a circuit counts a report once, however often it comes
34. keys_stand_alone            no key's operations wait for a circuit while its calls succeed
35. open_keys_are_left_alone    while a key's circuit is open nobody of it calls, but for tries
36. keys_recover                what waited for a key's circuit succeeds when its calls do
37. whoever_waits_is_woken      who waits for a circuit that is closed by hand hears of it
38. slots_are_given_back        a slot is lent to one, once, and given back by the attempt that had it
39. the_oldest_goes_first       a free slot goes to who has waited for the longest, by its priority
40. attempts_are_within_limits  never are more attempts under way than the dependency's limit
41. lanes_run_one_at_a_time     of the operations of an order key one runs at a time
42. lanes_keep_the_order        what is submitted after another was accepted does not begin before it
43. dead_letters_block_lanes    behind one nothing begins until it is replayed to its end or put away
44. lanes_go_on_for_a_reason    a lane goes on only then; at rest only open dead letters are in it
45. refusals_are_final          what storage refuses for good is a dead letter that says why
46. answers_are_true            who waits for an end is answered with one that the operation has
47. records_agree               the record of a key answers what the last run ended with
48. records_expire              and goes when its time is over
49. batches_are_whole           every item ended as its operation did, never too many at once
50. sagas_are_undone            a step follows success only; what was done is undone in reverse
51. restarts_are_true           what a restarted saga says of a step is what the dependency did last
52. references_are_filled_in    a step that refers to an answer is sent what that was
53. calls_are_answered          a call by an orchestrator runs an operation of its own, and gives its result
54. index_has_all               what has ended is in the index once upkeep ran
55. index_needs_no_mending      and lacks nothing before, where no worker died
56. ends_are_listed             and in the list of its state, where it ended otherwise than well
57. results_are_there           what is stored apart is there as long as its record, and goes afterwards
58. alerts_are_true             an alert is raised and cleared when it is so, in every ninth world
59. nothing_is_left             nothing runs, nothing is under way, nothing is noted as still to be done
60. nothing_unexpected          no orchestration failed, a repeated turn is the same, no error went unheard
61. nothing_while_everything_is_held  once its circuit has a freeze no attempt begins, but for tries
62. recoveries_are_due          a recovery replays what an outage left, a while after it, not too often

Small worlds have one to six operations and minutes of storm. Their turns run on a light context; the SDK
replays some of them from the beginning, and both must ask for the same.

Mistakes that the app once had, and some that somebody could make, are in `mistakes`: each must show within so
many small worlds. To try another, write it down there as a patch, and play it:

    python -m tests.simulation --small --seeds 500 --mistake "younger first"

Where no world shows it, let the worlds do more of what it is about, or say in an invariant what must hold.

A seed is a world: `python -m tests.simulation --seed 7` plays one again, `--log` prints what happened in it,
`--seeds 100` plays others, `--small` plays worlds of one to six operations and of minutes, and `--losing`
those in which messages of timers, activities and entities are lost as well, and `watch` runs. When something
does not hold, the command looks for the smallest and calmest such world of that seed.
"""

import os
import subprocess
import sys
from dataclasses import fields
from functools import partial
from secrets import randbelow
from typing import Final
from unittest.mock import patch

import pytest

from durable_retry.settings.configuration import APP_ROOT
from tests.long_checks import SAMPLE_SEED
from tests.simulation import __main__ as simulation
from tests.simulation import hub
from tests.simulation.chances import CROWDED_EVERY, Chances, small_size
from tests.simulation.invariants import INVARIANTS, broken
from tests.simulation.mistakes import OF_INVARIANTS, ONCE, PLAUSIBLE, Mistake
from tests.simulation.shrink import found_in, shrunk
from tests.simulation.story import simulated
from tests.simulation.turns import LightContext

OPERATIONS: Final = 150
FEW: Final = 40


ROUGH: Final = range(3, 60, 3)
"""Worlds in which trouble is thrice as likely."""

ROUGH_FROM: Final = {"asking_spares_a_second_effect": 222}
"""The first such world for a mistake that few of them show."""

SMALL_WORLDS: Final = range(1_000, 1_040)

CROWDED: Final = range(1_127 * CROWDED_EVERY, 1_147 * CROWDED_EVERY, CROWDED_EVERY)
"""Worlds in which everybody wants the one slot of a dependency."""

LOSING_WORLDS: Final = (*range(5_000, 5_030), 6_031, 7_743, 8_016, 8_097, 8_381)
"""Worlds in which messages of timers, activities and entities are lost, and `watch` runs.

The last ones once showed a place in an order that was given by an old number, or were misjudged.
"""

COMPARED_WORLDS: Final = range(2_000, 2_012)

SAMPLE: Final = os.environ.get(SAMPLE_SEED)

WORLDS_DRAWN: Final = 10_000 if SAMPLE is None else 1_000

STRETCHES: Final = 10

FIRST: Final = randbelow(simulation.SEEDS) if SAMPLE is None else int(SAMPLE) * WORLDS_DRAWN
"""The seed of the first world that is drawn."""

FRESH: Final = randbelow(simulation.SEEDS)
"""Another world in every run; when it fails, its number is in what is printed."""


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


def test_everything_holds_where_messages_are_lost() -> None:
    lost = 0
    for seed in LOSING_WORLDS:
        again = f"python -m tests.simulation --small --losing --seed {seed}"
        story = simulated(seed, small_size(seed), losing=True)
        lost += story.app.hub.lost_messages.total()
        assert broken(story) == {}, f"play it again with: {again}"
    assert lost >= len(LOSING_WORLDS)


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
@pytest.mark.parametrize("invariant", OF_INVARIANTS)
def test_an_invariant_sees_a_mistake_in_the_app(invariant: str) -> None:
    first = ROUGH_FROM.get(invariant, ROUGH.start)
    seeds = range(first, first + len(ROUGH) * ROUGH.step, ROUGH.step)
    worlds = (simulated(seed, FEW, OF_INVARIANTS[invariant]()) for seed in seeds)
    assert any(invariant in broken(world) for world in worlds)


@pytest.mark.long
def test_a_failure_shrinks_to_what_it_needs() -> None:
    mistake = OF_INVARIANTS["dead_letters_are_kept"]()
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


def test_each_mistake_is_one_of_what_the_app_has() -> None:
    """Whether a world shows it takes minutes; that its name is still there does not."""
    for make in (*(mistake.patch for mistake in (*ONCE, *PLAUSIBLE)), *OF_INVARIANTS.values()):
        with make():
            pass


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mistake", [*ONCE, *PLAUSIBLE], ids=lambda mistake: mistake.name)
def test_a_mistake_shows_in_its_worlds(mistake: Mistake) -> None:
    worlds = range(mistake.first, mistake.first + mistake.bound)
    played = partial(found_in, losing=mistake.losing)
    shown = (seed for seed in worlds if played(seed, small_size(seed), mistake.patch()))
    # A world that is broken without the mistake says nothing about it.
    assert any(played(seed, small_size(seed)) is None for seed in shown)


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


def test_a_world_is_the_same_again_in_a_process_that_has_imported_little() -> None:
    digests = "(simulated(93001, 6).world.digest() for _ in range(2))"
    code = f"from tests.simulation.story import simulated; print(len({{*{digests}}}))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=APP_ROOT, check=True, capture_output=True, text=True
    )
    assert run.stdout == "1\n"


def test_every_invariant_is_listed_above() -> None:
    listed = [line.split()[1] for line in (__doc__ or "").splitlines() if line[:2].strip().isdigit()]
    assert listed == [invariant.__name__ for invariant in INVARIANTS]
