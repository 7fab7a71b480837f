"""The tests that need the task hub's own terms: `pytest --semantics azure` leaves them out; and `Calls`.

Found by running all of tests/e2e and tests/fault, the former with five times as many lost turns and twenty
times as many doubled activities. What else may fail with the usual shares, rarely, is of the same kinds.
"""

import os
from dataclasses import dataclass
from typing import Final, override

import pytest

from scripts.processes import PATIENCE

COUNTS: Final = "counts calls: an activity runs at least once, and a lost turn schedules it again"
TIMES: Final = "compares instants: a turn runs again later, and clocks of machines differ"
SOON: Final = "purges or reads at once what is stored a moment after the message that tells of it"

OWN_TERMS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    COUNTS: {
        "test_batches": ("an_operation_that_was_",),
        "test_categories": ("a_failure_ends_as_its_category_says", "a_passing_trouble_is_retried_"),
        "test_circuits": ("a_dependency_that_dies_", "retries_beyond_the_budget_", "the_intake_of_a_"),
        "test_crash": ("what_waits_and_what_is_in_an_attempt_",),
        "test_handlers": ("the_shipped_handler_keeps_its_order_", "a_step_is_remembered_"),
        "test_installed": ("an_orchestration_of_the_shop_",),
        "test_metrics": ("an_outage_leaves_",),
        "test_operations": (
            *("an_operation_that_fails_twice_", "500_operations_at_once_", "every_try_of_a_large_"),
        ),
        "test_outbox": ("events_to_a_queue_arrive_", "an_undeliverable_event_"),
        "test_queue": ("an_operation_put_on_the_queue_",),
        "test_sources": ("a_service_bus_message_is_named_", "one_event_by_http_"),
        "test_step_cuts": ("a_kill_at_a_boundary_", "a_replay_runs_the_step_in_doubt_"),
        "test_telemetry": ("one_trace_leads_", "every_metric_arrives_", "log_lines_carry_"),
    },
    TIMES: {
        "test_circuits": ("one_429_pauses_",),
        "test_freeze": ("a_hold_ends_by_itself_",),
        "test_outbox": ("an_event_shows_its_data_",),
    },
    SOON: {
        "test_memory": ("a_purged_", "whoever_purges_"),
        "test_sagas": ("a_compensation_that_cannot_succeed_",),
    },
}
"""Beginnings of names, without `test_`, by reason and file."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The calls of so many attempts, as a target counts them: on Azure's terms at least so many.

    An activity runs at least once there. It says nothing of a request that may be sent once only.
    """

    attempts: int

    @override
    def __eq__(self, count: object) -> bool:
        return count == self.attempts or (
            is_on_azures_terms() and isinstance(count, int) and count > self.attempts
        )

    @override
    def __hash__(self) -> int:
        return hash(self.attempts)


_IS_AZURE: Final = "ONEBOX_SEMANTICS"


def is_on_azures_terms() -> bool:
    """Whether the task hub may run an activity again, and lose or delay a message, as Azure's may."""
    return _IS_AZURE in os.environ


def be_on_azures_terms(semantics: str) -> None:
    """Give the task hub's terms to what tests start, and give everything more time.

    Storage hides a message whose answer was lost for a minute. onebox hides one for half a second.
    """
    os.environ[_IS_AZURE] = semantics if "hidden=" in semantics else f"{semantics},hidden=0.5"
    os.environ[PATIENCE] = "6"


_PLACES: Final = frozenset({"e2e", "fault"})


def reason_for_own_terms(item: pytest.Item) -> str | None:
    """Return why a test needs the task hub's own terms; None when it does not."""
    name = item.name.removeprefix("test_")
    for reason, files in OWN_TERMS.items():
        beginnings = files.get(item.path.stem, ())
        if _PLACES & set(item.path.parts) and beginnings and name.startswith(beginnings):
            return reason
    return None
