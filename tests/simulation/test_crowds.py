"""Crowds: hundreds of operations that wait for limits, and for the places of a hub that has few.

Each world has one crowd, its neighbours at another dependency, and newcomers when it has ended. What happens
to it meanwhile, the limits, and the hub follow from the seed; see `crowds.crowd`. What holds:

 1 starts_stay_within_the_rate       in no second do more calls begin than the rate allows
 2 keys_stay_within_their_rate       nor more of one limit key than its own rate allows
 3 calls_stay_within_the_limit       never are more under way than allowed, of all and of a limit key
 4 pauses_are_kept                   nobody calls while the dependency's Retry-After lasts
 5 holds_are_kept                    nobody calls while everything is held by hand
 6 unsafe_requests_arrive_once       what is not deduplicated arrives once, or its operation ends ambiguous
 7 what_waits_is_not_lost            where no worker dies each takes effect once, however long it was queued
 8 nothing_waits_when_nobody_does    when all have ended, the limiter has nothing lent and nobody waits
 9 a_backlog_moves_at_the_limit      a backlog takes as long as its limits make it take, within a tenth
10 a_free_slot_is_taken              a slot that nobody came for is taken within seconds, while somebody waits
11 urgent_ones_go_first              in a backlog those of a higher priority begin earlier
12 heavy_keys_go_first              so do those of a limit key with a weight
13 lanes_run_one_at_a_time          one operation of an order key calls at a time
14 held_ones_are_not_given_up       what is held when it has no time left goes on when it is resumed
15 accepted_ones_end_with_their_work what is accepted with 202 succeeds when its work has ended
16 nobody_is_accepted_while_open     who comes while a circuit that refuses is held open is answered 503
17 nothing_begins_after_its_deadline no call begins after the deadline of its operation
18 retries_stay_within_the_budget    retries take what the retry budget has, and what promises count on
19 retries_go_when_paid_for          no retry waits much longer than until the budget has its token
20 neighbours_go_on                  who calls another dependency waits for the places of the hub at most
21 what_was_answered_is_not_dead     what the dependency answered with 200 is no dead letter
22 everything_ends_well              what nobody took away succeeds
23 open_circuits_are_left_alone      while a circuit is open no attempt begins, of any worker
24 breaks_end_with_a_probe           soon after its break somebody who waits probes
25 slow_calls_open_the_circuit       where calls are slow nobody calls until the break is over, but a probe
26 refused_credentials_open_the_circuit nor where the app's credential is refused
27 refused_credentials_cost_nothing  a call whose credential is refused is no attempt
28 refusals_count_without_their_body who is refused for good is a dead letter, though the body never comes
29 asked_ones_act_once               who asks what became of a lost call neither acts twice nor ends ambiguous
30 words_of_a_refusal_count          what a rule on the body calls throttled is repeated
31 renamed_ones_go_on                what waits for a dependency that is renamed goes on under its new name
32 handlers_send_once                a handler is not run again after it has sent what is sent once
33 paused_ones_call_nobody           what shows that it is paused begins nothing before it is resumed
34 bulk_replays_do_what_they_say     a bulk replay starts what it matched at its rate, and says how that ended
35 bulk_replays_stop_for_failures    a bulk replay stops where too many fail again, and leaves the rest
36 nothing_unexpected                no turn differs when it is repeated, and nothing is raised unheard

`python -m tests.simulation --crowd --seed 7` plays one again, `--seeds 100` others, `--operations 600` larger
ones. A mistake for each invariant is in `crowds.mistakes`.
"""

import sys
from secrets import randbelow
from typing import Final

import pytest

from durable_retry.features.limits.rules.settings import LEAST_SHARED
from tests.simulation import __main__ as simulation
from tests.simulation.crowds.crowd import CROWD_TROUBLES, Crowd
from tests.simulation.crowds.invariants import CROWD_INVARIANTS, broken_in
from tests.simulation.crowds.mistakes import OF_CROWDS, OF_SHARES
from tests.simulation.crowds.story import LARGE, MOST, crowd_story

CROWDS: Final = range(2 * len(CROWD_TROUBLES))
"""Each trouble twice."""

SHOWN_WITHIN: Final = range(16 * len(CROWD_TROUBLES))

DRAWN: Final = randbelow(simulation.SEEDS)
STRETCHES: Final = 5


def assert_holds(seed: int, most: int) -> None:
    again = f"python -m tests.simulation --crowd --seed {seed} --operations {most}"
    assert broken_in(crowd_story(seed, most)) == {}, f"play it again with: {again}"


@pytest.mark.parametrize("seed", CROWDS)
def test_everything_holds_in_a_crowd(seed: int) -> None:
    assert_holds(seed, MOST)


def test_what_the_budget_promised_to_those_that_are_terminated_is_soon_free() -> None:
    assert_holds(26690, MOST)


def test_a_retry_that_a_restart_cuts_off_keeps_its_token() -> None:
    assert_holds(727401, MOST)


def test_a_bulk_replay_that_stops_is_resumed() -> None:
    assert_holds(6130, MOST)


def test_a_replay_comes_behind_those_of_its_lane() -> None:
    assert_holds(1554, MOST)


def test_the_order_of_a_crowd_is_that_of_its_calls_however_long_none_begins() -> None:
    assert_holds(930208, MOST)


def test_newcomers_wait_for_a_circuit_that_lost_answers_have_opened() -> None:
    assert_holds(980075, MOST)


def test_a_probe_that_waits_for_a_slot_is_the_one_that_its_circuit_expects() -> None:
    assert_holds(1400030, MOST)


def test_who_had_no_place_of_the_hub_before_its_deadline_has_its_first_attempt() -> None:
    assert_holds(710014, MOST)


def test_the_share_of_a_worker_that_joins_others_is_free_at_first() -> None:
    assert_holds(711876, MOST)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("stretch", range(STRETCHES))
def test_everything_holds_in_crowds_that_are_drawn(stretch: int) -> None:
    first = DRAWN + 100 * stretch
    sys.stdout.write(f"stretch {stretch} begins with the seed {first}\n")
    for seed in range(first, first + 100):
        assert_holds(seed, MOST)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("trouble", range(len(CROWD_TROUBLES)))
def test_everything_holds_in_large_crowds(trouble: int) -> None:
    assert_holds(DRAWN - DRAWN % len(CROWD_TROUBLES) + trouble, LARGE)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("invariant", OF_CROWDS)
def test_an_invariant_sees_a_mistake_in_a_crowd(invariant: str) -> None:
    stories = (crowd_story(seed, MOST, OF_CROWDS[invariant]()) for seed in SHOWN_WITHIN)
    assert any(invariant in broken_in(story) for story in stories)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("invariant", OF_SHARES)
def test_an_invariant_sees_a_mistake_in_what_workers_share_out(invariant: str) -> None:
    shared = (seed for seed in SHOWN_WITHIN if Crowd.of(seed, MOST).max_concurrency >= LEAST_SHARED)
    stories = (crowd_story(seed, MOST, OF_SHARES[invariant]()) for seed in shared)
    assert any(invariant in broken_in(story) for story in stories)


def test_each_mistake_of_crowds_is_one_of_what_the_app_has() -> None:
    for make in (*OF_CROWDS.values(), *OF_SHARES.values()):
        with make():
            pass


def test_a_crowd_does_not_depend_on_those_before_it() -> None:
    assert len({crowd_story(1, MOST).world.digest() for _ in range(2)}) == 1


def test_every_invariant_of_crowds_is_listed_above_and_has_its_mistake() -> None:
    listed = [line.split()[1] for line in (__doc__ or "").splitlines() if line[:2].strip().isdigit()]
    assert listed == [invariant.__name__ for invariant in CROWD_INVARIANTS] == list(OF_CROWDS)
