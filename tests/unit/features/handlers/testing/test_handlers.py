import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

import durable_retry
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.handlers import registry
from durable_retry.features.handlers.testing.handlers import HandlerRun
from durable_retry.features.outbox.rules.event import Event
from durable_retry.handlers import Call, Outcome, Rejected, TableWrite, Transient
from durable_retry.runtime import clock
from durable_retry.testing import NOON, Crash, FakeClock, FakeDependency, FakeStep, Slow, run_handler
from examples.handlers import place_order
from scripts.processes import ROOT
from tests.support.commands import ran
from tests.support.documents import Document
from tests.support.narrowing import existing


class Order(BaseModel):
    number: int


async def charge(order: Order, call: Call) -> str:
    answer = await call.client.post("/charges", json={"number": order.number})
    answer.raise_for_status()
    return str(answer.json()["id"])


async def ship(order: Order, call: Call) -> Outcome:
    charged = await call.step("charge", charge, order)
    answer = await call.client.post("/parcels")
    if answer.status_code == 404:
        raise Rejected("nothing to ship")
    answer.raise_for_status()
    kept = TableWrite(table="Orders", partition_key="p", row_key=str(order.number), values={"paid": charged})
    return Outcome(charged, writes=[kept], events=[Event.to_queue("orders", "shipped", order)])


@pytest.fixture(autouse=True)
def only_ship(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", {})
    durable_retry.operation("ship", dependency="warehouse")(ship)


FIXED = """
[dependencies.warehouse]
base_url = "https://warehouse.example.com/${VERSION}"
retry = { strategy = "fixed", initial_seconds = 600, max_seconds = 600, max_attempts = 3, jitter = "none" }
timeouts = { attempt_seconds = 10, deadline_seconds = 0 }
idempotency = { header = "" }
"""


async def test_a_run_shows_attempts_waits_steps_and_what_would_commit() -> None:
    warehouse = FakeDependency(503, {"id": "ch-1"}, httpx.Response(429, headers={"Retry-After": "30"}), 201)
    run = await run_handler("ship", {"number": 7}, warehouse, retry={"jitter": "none"})
    assert (run.status, run.result, run.dead_letter) == ("succeeded", "ch-1", None)
    assert [attempt.category for attempt in run.attempts] == ["transient", "throttled", None]
    assert (run.attempt_count, run.waits, run.seconds) == (3, [2.0, 30.0], 32.0)
    assert run.reasons[1] == ("exponential 4 s", "Retry-After 30 s")
    assert run.steps == [{"name": "charge", "status": "succeeded", "attempts": 2, "result": "ch-1"}]
    assert [write["row_key"] for write in run.writes] == ["7"]
    assert run.events == [{"type": "shipped", "queue": "orders", "data": {"number": 7}}]
    assert warehouse.keys() == ["test-1~charge", "test-1~charge", "test-1", "test-1"]
    assert str(warehouse.requests[0].url) == "http://warehouse.test/charges"
    assert clock.now() != NOON


async def test_a_run_ends_as_a_dead_letter_by_the_apps_own_rules() -> None:
    run = await run_handler(ship, Order(number=7), FakeDependency({"id": 1}, 404))
    assert (run.status, run.attempt_count, run.events) == ("dead_lettered", 1, [])
    assert run.dead_letter is not None
    assert (run.dead_letter.reason, run.dead_letter.category) == ("RejectedByHandler", "business_rule")


async def test_a_run_shows_the_events_of_its_end() -> None:
    names = ("on_failure", "on_recovered")
    told: dict[str, Any] = {name: [{"type": name, "queue": "orders"}] for name in names}
    failed = await run_handler("ship", {"number": 7}, FakeDependency({"id": "ch-1"}, 404), **told)
    assert [event["type"] for event in failed.events] == ["on_failure"]
    late = FakeDependency({"id": "ch-1"}, 503, 503, 503, 503, 201)
    recovered = await run_handler("ship", {"number": 7}, late, retry={"jitter": "none"}, **told)
    assert [event["type"] for event in recovered.events] == ["shipped", "on_recovered"]


async def test_a_day_of_waits_takes_no_time(tmp_path: Path) -> None:
    file = tmp_path / "dependencies.toml"
    file.write_text(FIXED.replace("max_attempts = 3", "max_attempts = 144"))
    warehouse = FakeDependency(httpx.ConnectError("away"))
    run = await run_handler(ship, Order(number=7), warehouse, config=file, settings={"VERSION": "v1"})
    assert (existing(run.dead_letter).reason, run.seconds) == ("RetriesExhausted", 143 * 600)


async def test_a_crash_repeats_the_attempt_and_no_finished_step() -> None:
    warehouse = FakeDependency({"id": "ch-1"}, Crash(), 200)
    run = await run_handler(ship, {"number": 7}, warehouse)
    assert (run.status, run.attempt_count) == ("succeeded", 1)
    assert [request.url.path for request in warehouse.requests] == ["/charges", "/parcels", "/parcels"]


async def test_a_crash_in_a_step_is_in_doubt_where_nobody_deduplicates() -> None:
    run = await run_handler(
        ship, {"number": 7}, FakeDependency(Crash(), {"id": 1}), config=FIXED, settings={"VERSION": "v1"}
    )
    assert existing(run.dead_letter).reason == "AmbiguousOutcome"
    assert run.steps[0]["status"] == "unknown"


async def test_a_process_that_dies_for_ever_is_an_error_of_the_test() -> None:
    with pytest.raises(RuntimeError, match="died 19 times"):
        await run_handler(ship, {"number": 7}, FakeDependency(Crash()))


async def test_a_slow_answer_moves_the_clock_and_may_come_too_late() -> None:
    warehouse = FakeDependency(Slow(4, {"id": 1}), Slow(10), Slow(3, lambda _: 200))
    run = await run_handler(ship, {"number": 7}, warehouse, retry={"jitter": "none"})
    assert (run.status, run.waits, run.seconds) == ("succeeded", [2.0], 10 + 2 + 3)
    assert [attempt.duration_ms for attempt in run.attempts] == [10_000, 3_000]


async def test_what_would_be_refused_is_refused() -> None:
    with pytest.raises(LookupError, match="no handler 'sip'"):
        await run_handler("sip", {})
    with pytest.raises(LookupError, match="no dependency 'warehouse'"):
        await run_handler("ship", {"number": 7}, config="")
    with pytest.raises(ValueError, match="number"):
        await run_handler("ship", {"number": "seven"})
    with pytest.raises(InvalidInputError, match="/retry/max_attempts"):
        await run_handler("ship", {"number": 7}, retry={"max_attempts": 99})


async def test_the_shipped_handler_keeps_its_order_and_announces_it() -> None:
    durable_retry.operation("place-order", dependency="flaky")(place_order)
    order = {"order": "h1", "customer": "ada", "amount": 3}
    run = await run_handler(place_order, order, FakeDependency(429, 503, 200))
    assert (run.status, run.result) == ("succeeded", {"order": "h1", "attempt": 3})
    assert run.writes[0]["values"] == {"amount": 3, "key": "test-1"}
    assert [event["type"] for event in run.events] == ["order.placed"]
    refused = await run_handler(place_order, order, FakeDependency(422))
    assert existing(refused.dead_letter).reason == "RejectedByDependency"


@pytest.mark.parametrize(
    ("pages", "files", "tests"),
    [
        (["handlers"], {"pytest.ini", "shipping.py", "test_charge.py", "test_shipping.py"}, 3),
        (
            ["adopting", "handlers"],
            {"pytest.ini", "dependencies.toml", "function_app.py", "test_checkout.py"},
            1,
        ),
    ],
)
def test_the_tests_of_the_documents_pass_as_copied(
    tmp_path: Path, pages: list[str], files: set[str], tests: int
) -> None:
    for page in pages:
        for block in Document(f"docs/{page}.md").blocks("python", "toml", "ini"):
            if (name := block.marks.get("file", "")) in files:
                with (tmp_path / name).open("a") as file:
                    file.write(f"{block.text}\n")
    assert {file.name for file in tmp_path.iterdir()} == files
    keys, _ = Document("docs/adopting.md").blocks("json")
    (tmp_path / "host.json").write_text(keys.text)
    done = ran(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert f"{tests} passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_client_of_the_functions_own_is_answered_by_the_fake_of_its_host_or_its_dependency(
    *, is_async: bool
) -> None:
    def pay() -> list[str]:
        with httpx.Client() as client:
            answers = [client.post(f"https://{host}.test/", timeout=9) for host in ("bank", "parcels")]
        return [answer.raise_for_status().json() for answer in answers]

    async def pay_async() -> list[str]:
        async with httpx.AsyncClient() as client:
            answers = [await client.post(f"https://{host}.test/") for host in ("bank", "parcels")]
        return [answer.raise_for_status().json() for answer in answers]

    durable_retry.operation("pay", dependency="payments")(pay_async if is_async else pay)
    fakes = {"payments": FakeDependency("paid"), "parcels": FakeDependency(Slow(99), Slow(3, 503), "sent")}
    run = await run_handler("pay", {}, fakes, retry={"jitter": "none"})
    assert (run.result, run.attempt_count) == (["paid", "sent"], 3)
    assert run.attempts[0].error == "TimeoutError: not finished within 10 s"
    assert run.seconds == 10 + 2 + 3 + 4


async def test_a_fake_that_was_never_asked_says_so_where_all_succeeded() -> None:
    def pay(order: int) -> str:
        if order < 1:
            raise Rejected("no such order")
        return "with a library that the kit does not see"

    durable_retry.operation(dependency="payments")(pay)
    with pytest.warns(UserWarning, match="the FakeDependency of 'payments' was never asked: it answers"):
        await run_handler(pay, {"order": 1}, FakeDependency(503, 200))
    assert (await run_handler(pay, {"order": 0}, FakeDependency(503))).status == "dead_lettered"
    assert (await run_handler(pay, {"order": 1}, FakeDependency())).status == "succeeded"


async def test_a_fake_step_that_was_never_run_says_so() -> None:
    async def pay(call: Call) -> str:
        return await call.step("charge", lambda: "ch-1")

    durable_retry.operation(dependency="payments")(pay)
    with pytest.warns(UserWarning, match="no step 'charg' was run: its FakeStep was never called"):
        await run_handler(pay, {}, steps={"charg": FakeStep("ch-9")})


async def test_runs_at_once_are_refused_as_one_would_have_the_answers_of_the_other() -> None:
    async def pay(call: Call) -> int:
        return (await call.client.get("/")).status_code

    durable_retry.operation(dependency="payments")(pay)
    runs = (run_handler(pay, {}, FakeDependency(status_code)) for status_code in (201, 202))
    ended = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(run) for run in ended] == [HandlerRun, RuntimeError]
    assert (await run_handler(pay, {}, FakeDependency(202))).result == 202


async def test_each_dependency_has_answers_of_its_own() -> None:
    async def ask(path: str, call: Call) -> str:
        answer = await call.client.post(path)
        answer.raise_for_status()
        return str(answer.json()["id"])

    async def order(call: Call) -> list[str]:
        charged = await call.step("charge", ask, "/charges")
        return [charged, await call.step("ship", ask, "/parcels", dependency="parcels")]

    durable_retry.operation(dependency="payments")(order)
    payments, parcels = FakeDependency({"id": "ch-1"}), FakeDependency(503, {"id": "p-1"})
    run = await run_handler(order, {}, {"payments": payments, "parcels": parcels})
    assert run.result == ["ch-1", "p-1"]
    assert [request.url.host for request in payments.requests] == ["payments.test"]
    assert [request.url.host for request in parcels.requests] == ["parcels.test"] * 2


async def test_a_step_can_have_scripted_results_in_place_of_its_function() -> None:
    step = FakeStep(Transient("busy"), "ch-9")
    run = await run_handler("ship", {"number": 7}, steps={"charge": step}, retry={"jitter": "none"})
    assert (run.result, run.waits) == ("ch-9", [2.0])
    assert [kwargs for _, kwargs in step.calls] == [{}, {}]
    assert [args[0].number for args, _ in step.calls] == [7, 7]


async def test_a_run_has_the_clock_that_it_is_given() -> None:
    time = FakeClock(NOON + timedelta(days=1))
    await run_handler(
        "ship", {"number": 7}, FakeDependency(503, {"id": "c"}), time=time, retry={"jitter": "none"}
    )
    assert time.now() == NOON + timedelta(days=1, seconds=2)


async def test_heartbeats_are_shown_and_given_to_the_next_attempt() -> None:
    async def copy(call: Call) -> int:
        page = int(call.progress or 0) + 1
        call.heartbeat(page)
        if page < 3:
            raise Transient("more")
        return page

    durable_retry.operation(dependency="warehouse", heartbeat_seconds=30)(copy)
    run = await run_handler(copy, {})
    assert (run.result, run.attempt_count, run.steps) == (3, 3, [])
    assert run.progress in {2, 3}, "the last report of a success need not be stored"


async def test_an_answer_that_is_slower_than_the_heartbeats_ends_the_attempt() -> None:
    async def fetch(call: Call) -> int:
        page = int(call.progress or 0)
        while page < 3:
            await call.client.get(f"/pages/{page}")
            page += 1
            call.heartbeat(page)
        return page

    durable_retry.operation("fetch", dependency="warehouse", heartbeat_seconds=3)(fetch)
    # Two seconds twice are within the time, since a report is between them.
    warehouse = FakeDependency(Slow(2), Slow(2), Slow(4), 200)
    run = await run_handler("fetch", {}, warehouse, retry={"jitter": "none"})
    assert (run.status, run.attempts[0].error) == (
        "succeeded",
        "TimeoutError: no heartbeat within 3 s",
    )
    assert [request.url.path for request in warehouse.requests] == [f"/pages/{n}" for n in (0, 1, 2, 2)]
    assert run.seconds == 2 + 2 + 3 + 2


LOADED = """
from durable_retry.testing import use_placeholders
use_placeholders()
import function_app
from durable_retry.settings.configuration import find_dependency
print(find_dependency("flaky").base_url)
"""


def test_a_function_app_is_imported_without_its_environment() -> None:
    def run(code: str) -> subprocess.CompletedProcess[str]:
        return ran([sys.executable, "-c", code], env={"PATH": os.environ["PATH"]})

    imported = run(LOADED)
    assert imported.stdout == "http://flaky-target-url.test\n", imported.stderr
    assert "the app setting FLAKY_TARGET_URL is missing" in run("import function_app").stderr


ONCE = '[dependencies.payments]\nbase_url = "https://pay.test"\nidempotency = { header = "" }'


@pytest.mark.parametrize("repeatable", [None, False])
async def test_a_crash_sends_nothing_again_that_must_be_sent_once(*, repeatable: bool | None) -> None:
    @durable_retry.operation("charge-once", dependency="payments", repeatable=repeatable)
    async def charge_once(call: Call) -> None:
        await call.client.post("/charges")

    payments = FakeDependency(Crash(), 200)
    run = await run_handler(charge_once, {}, payments, config=ONCE)
    assert (run.status, len(payments.requests)) == ("dead_lettered", 1)
    assert existing(run.dead_letter).reason == "AmbiguousOutcome"


async def test_a_crash_of_what_may_be_sent_twice_sends_it_again() -> None:
    @durable_retry.operation("charge-twice", dependency="payments", repeatable=True)
    async def charge_twice(call: Call) -> None:
        await call.client.post("/charges")

    payments = FakeDependency(Crash(), 200)
    run = await run_handler(charge_twice, {}, payments, config=ONCE)
    assert (run.status, len(payments.requests)) == ("succeeded", 2)
