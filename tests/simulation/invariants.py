"""What holds of every simulated world; a function gives what contradicts it, and nothing when it holds."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.simulation import answered, calls, debounced, keys, lanes, letters, limits, outcomes
from tests.simulation.story import Story

type Invariant = Callable[[Story], Iterator[str]]

INVARIANTS: Final[tuple[Invariant, ...]] = (
    outcomes.ends_once,
    calls.one_effect_per_key,
    calls.nothing_unsafe_twice,
    calls.asking_spares_a_second_effect,
    calls.accepted_work_is_followed,
    calls.one_place_has_the_effect,
    calls.ambiguity_is_real,
    calls.attempts_leave_nothing,
    calls.attempts_are_counted,
    calls.no_early_attempt,
    calls.not_now_is_not_never,
    calls.starts_are_kept,
    debounced.quiet_is_waited_for,
    debounced.replaced_ones_do_not_run,
    debounced.the_last_one_runs,
    debounced.keys_are_forgotten,
    calls.nothing_while_paused,
    calls.pauses_are_noted,
    calls.holds_are_kept,
    calls.nothing_after_the_deadline,
    calls.steps_run_once,
    calls.progress_is_kept,
    outcomes.events_arrive,
    outcomes.events_are_complete,
    outcomes.swaps_commit_once,
    outcomes.failures_are_told,
    letters.dead_letters_are_kept,
    letters.lineage_is_recorded,
    letters.stops_are_kept,
    letters.messages_are_kept,
    letters.lists_agree,
    calls.circuits_probe_within_limits,
    calls.reports_count_once,
    keys.keys_stand_alone,
    keys.open_keys_are_left_alone,
    keys.keys_recover,
    keys.whoever_waits_is_woken,
    limits.slots_are_given_back,
    limits.the_oldest_goes_first,
    limits.attempts_are_within_limits,
    lanes.lanes_run_one_at_a_time,
    lanes.lanes_keep_the_order,
    lanes.dead_letters_block_lanes,
    lanes.lanes_go_on_for_a_reason,
    outcomes.refusals_are_final,
    outcomes.answers_are_true,
    outcomes.records_agree,
    outcomes.records_expire,
    outcomes.batches_are_whole,
    outcomes.sagas_are_undone,
    outcomes.restarts_are_true,
    outcomes.references_are_filled_in,
    answered.calls_are_answered,
    outcomes.index_has_all,
    outcomes.index_needs_no_mending,
    outcomes.ends_are_listed,
    outcomes.results_are_there,
    outcomes.alerts_are_true,
    outcomes.nothing_is_left,
    outcomes.nothing_unexpected,
    calls.nothing_while_everything_is_held,
    letters.recoveries_are_due,
)


def broken(story: Story) -> dict[str, list[str]]:
    """Return what contradicts each invariant that does not hold."""
    found = {invariant.__name__: list(invariant(story)) for invariant in INVARIANTS}
    return {name: contradictions for name, contradictions in found.items() if contradictions}
