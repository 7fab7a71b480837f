import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from docs.sizing import (
    ACCOUNT_PER_SECOND,
    COUNTED_REQUESTS,
    GENERATED_REQUESTS,
    HEADROOM,
    IDLE_REQUESTS_PER_MINUTE,
    INSTANCE_OPERATIONS,
    LOOK,
    MEASURED_REQUESTS,
    MOST_IDLE_REQUESTS,
    PLAIN_REQUESTS,
    PURGE,
    RATES,
    RECORD,
    UPKEEP,
    Cost,
    Plan,
    limits,
    measured,
    mixed,
    on_scheduler,
    on_storage,
    page,
)
from scripts.processes import ROOT

PAGE = (ROOT / "docs/sizing.md").read_text()
BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text()
COSTS = measured(BENCHMARKS)
MIX = mixed(COSTS)

each_backend = pytest.mark.parametrize("planned", [on_storage, on_scheduler])


def test_the_page_has_the_tables_of_the_model() -> None:
    assert page(PAGE, BENCHMARKS) == PAGE, "run: python docs/sizing.py"
    assert PAGE.count("<!-- table: ") == PAGE.count(" -->\n| ")


def test_the_page_has_the_assumptions_of_the_model() -> None:
    assert f"{INSTANCE_OPERATIONS} operations a second on an instance" in PAGE
    assert f"limits used to {HEADROOM:.0%}".replace("%", " %") in PAGE
    assert f"{ACCOUNT_PER_SECOND:,} requests a second" in PAGE
    assert f"| upkeep | {UPKEEP} |" in PAGE
    total = COSTS["succeeds at once"].requests
    assert f"succeeds at once takes {total:.0f} requests" in PAGE
    text = " ".join(PAGE.split())
    assert f"{RECORD} keep the record" in text
    assert f"{MEASURED_REQUESTS} storage requests" in text
    assert f"{GENERATED_REQUESTS} with a key that the app generated" in text
    assert f"generated key takes {GENERATED_REQUESTS + LOOK + PURGE}." in text
    assert f"one activity took {PLAIN_REQUESTS}" in text
    assert f"about {IDLE_REQUESTS_PER_MINUTE} storage requests a minute" in text


def test_an_idle_app_costs_no_more_than_it_may() -> None:
    assert IDLE_REQUESTS_PER_MINUTE <= MOST_IDLE_REQUESTS


def test_the_operation_that_was_measured_costs_what_was_measured() -> None:
    measured_one = COSTS["succeeds at once"]
    assert sum(measured_one.steps().values()) == COUNTED_REQUESTS
    assert measured_one.until_it_ends == MEASURED_REQUESTS


def test_an_operation_that_succeeds_at_once_is_counted_by_hand() -> None:
    # Messages: started, result, a signal. Two turns, one entity batch, one activity.
    cost = Cost(turns=2, activities=1, entities=1, tables=0)
    assert cost.steps() == {
        "start": 3,
        "messages": 9,
        "turns": 6,
        "entities": 3,
        "activities": 3,
        "the app's tables": 0,
    }
    assert cost.requests == 24 * 16 / 18 + 6


def test_the_apps_own_requests_are_taken_as_they_are() -> None:
    cost = Cost(turns=2, activities=1, entities=0, tables=10)
    assert cost.until_it_ends == MEASURED_REQUESTS + 10


@pytest.mark.parametrize("name", ["turns", "activities", "entities", "tables"])
def test_more_of_anything_costs_more(name: str) -> None:
    more = replace(MIX, **{name: getattr(MIX, name) + 1})
    assert more.requests > MIX.requests
    assert all(
        value <= limits(MIX, 4)[limit] for limit, value in limits(more, 4).items() if "instances" not in limit
    )


@each_backend
def test_a_plan_carries_its_rate(planned: Callable[[Cost, int], Plan]) -> None:
    for rate in RATES:
        plan = planned(MIX, rate)
        assert plan.instances * INSTANCE_OPERATIONS * HEADROOM >= rate
        assert plan.instances % plan.hubs == 0
        if planned is on_storage:
            partitions = int(plan.backend.split()[0])
            assert rate / plan.hubs <= HEADROOM * min(limits(MIX, partitions).values())
            assert plan.requests / plan.hubs <= ACCOUNT_PER_SECOND


@each_backend
def test_a_higher_rate_never_needs_less(planned: Callable[[Cost, int], Plan]) -> None:
    plans = [planned(MIX, rate) for rate in RATES]
    for less, more in pairwise(plans):
        assert (less.hubs, less.instances, less.dollars) <= (more.hubs, more.instances, more.dollars)


def hub_of() -> Callable[..., str]:
    """The function of the page, as a reader would copy it."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Callable[..., str]] = {}
    exec(code, names)  # noqa: S102 - the page's own code
    return names["hub_of"]


def test_the_pages_function_spreads_keys_and_one_more_hub_takes_only_its_own() -> None:
    choose = hub_of()
    hubs = ["https://a.example.com", "https://b.example.com", "https://c.example.com"]
    keys = [f"order-{number}" for number in range(3_000)]
    before = {key: choose(key, hubs) for key in keys}
    assert min(Counter(before.values()).values()) > 800
    after = {key: choose(key, [*hubs, "https://d.example.com"]) for key in keys}
    moved = {key for key in keys if before[key] != after[key]}
    assert {after[key] for key in moved} == {"https://d.example.com"}
    assert 600 < len(moved) < 900
