from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

import durable_retry
from durable_retry.features.handlers import registry
from durable_retry.handlers import Call, Outcome, Rejected, TableWrite, Transient
from durable_retry.testing import FakeDependency, HandlerRun, run_handler

CONFIG = """
[dependencies.bank]
base_url = "https://bank.example.com"
retry = { strategy = "fixed", initial_seconds = 5, max_attempts = 3, jitter = "none" }
idempotency = { header = "" }
circuit = { unauthorized_calls = 0 }
"""
LOST = httpx.ReadTimeout("lost")


class Charge(BaseModel):
    id: str


async def charge(order: str, amount: int = 1, *, call: Call) -> Charge:
    answer = await call.client.post("/charges", json={"order": order, "amount": amount})
    return Charge(id=answer.json()["id"])


def pay(order: str) -> str:
    return httpx.post("https://bank.example.com/pay", json=order, verify=False).text  # noqa: S501 - a fake


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_handlers", {})
    durable_retry.operation(dependency="bank")(charge)
    durable_retry.operation(dependency="bank", repeatable=False)(pay)
    yield
    del charge.lookup, pay.lookup  # type: ignore[attr-defined] # as `operation` makes them


def asked_by(lookup: Any, of: Any = charge, **options: Any) -> None:
    of.lookup(**options)(lookup)


async def run(*answers: Any, of: Callable[..., Any] = charge, **more: Any) -> tuple[HandlerRun, list[str]]:
    """Run a handler whose first request has an unknown end; return the methods that the bank received."""
    bank = FakeDependency(LOST, *answers)
    run = await run_handler(of, {"order": "o-1"}, bank, config=CONFIG, **more)
    return run, [request.method for request in bank.requests]


async def test_what_it_returns_is_the_result_and_nothing_is_sent_again() -> None:
    seen: list[Any] = []

    async def find(amount: int, own: Call, order: str) -> Charge | None:
        seen.extend([order, amount, own.key, own.correlation_id, own.attempt])
        answer = await own.client.get("/charges", params={"reference": own.key})
        return Charge(**answer.json())

    asked_by(find)
    ended, methods = await run({"id": "ch-1"}, correlation_id="c-1")
    assert (ended.status, ended.result, ended.waits) == ("succeeded", {"id": "ch-1"}, [])
    assert methods == ["POST", "GET"]
    assert seen == ["o-1", 1, "test-1", "c-1", 1]
    assert ended.attempts[0].delay_reasons == ("found at 2030-01-01T12:00:00Z by lookup",)


async def test_none_says_that_it_is_sent_again_once_that_is_settled() -> None:
    def find(order: str) -> None:
        assert order == "o-1"

    asked_by(find, settle_seconds=60)
    ended, methods = await run({"id": "ch-2"})
    assert (ended.status, ended.result, ended.waits) == ("succeeded", {"id": "ch-2"}, [60.0, 5.0])
    assert methods == ["POST", "POST"]


async def test_a_function_that_takes_no_call_may_have_a_lookup_that_does() -> None:
    def find(call: Call) -> Outcome[str]:
        update = TableWrite(table="Paid", partition_key="p", row_key=call.key, mode="update")
        return Outcome("paid", writes=[update])

    asked_by(find, of=pay)
    ended, methods = await run(of=pay)
    assert (ended.status, ended.result, methods) == ("succeeded", "paid", ["POST"])
    assert [write["mode"] for write in ended.writes] == ["update"]


async def letter_after(lookup: Any, *answers: Any) -> tuple[dict[str, str], list[str]]:
    asked_by(lookup)
    ended, methods = await run(*answers)
    assert ended.dead_letter is not None
    return {"reason": ended.dead_letter.reason, "detail": ended.dead_letter.detail}, methods


async def test_rejected_says_that_it_happened_and_failed_for_good() -> None:
    async def find() -> None:
        raise Rejected("the card was stolen")

    letter, methods = await letter_after(find)
    assert letter["reason"] == "RejectedByHandler"
    assert letter["detail"].endswith("by lookup, and it failed there: Rejected: the card was stolen")
    assert methods == ["POST"]


async def refused(call: Call) -> None:
    (await call.client.get("/charges")).raise_for_status()


def busy() -> None:
    raise Transient("a replica is behind", retry_after=7)


def broken() -> str:
    raise KeyError("id")


def of_another_type() -> int:
    return 5


async def remembering(call: Call) -> Any:
    return await call.step("find", busy)


@pytest.mark.parametrize(
    ("lookup", "why"),
    [
        (refused, "HTTPStatusError"),
        (busy, "attempt 3 of 3 failed: Transient: a replica is behind"),
        (broken, "bug in handler charge.lookup: KeyError"),
        (of_another_type, "/value"),
        (remembering, "a lookup has no steps"),
    ],
)
async def test_anything_else_says_nothing(lookup: Any, why: str) -> None:
    letter, methods = await letter_after(lookup, 402)
    assert letter["reason"] == "AmbiguousOutcome"
    assert "its lookup got no answer" in letter["detail"]
    assert why in letter["detail"]
    assert methods.count("POST") == 1


async def test_a_table_of_the_dependency_is_asked_in_the_kit_too_and_a_function_before_it() -> None:
    table = '[dependencies.bank.lookup]\npath = "/charges/{key}"\nfound = "/id"\n'
    bank = FakeDependency(LOST, {"id": "ch-1"})
    ended = await run_handler(charge, {"order": "o-1"}, bank, config=CONFIG + table)
    assert (ended.status, [each.url.path for each in bank.requests]) == (
        "succeeded",
        ["/charges", "/charges/test-1"],
    )
    asked_by(lambda: Charge(id="ch-7"))
    ended = await run_handler(charge, {"order": "o-1"}, FakeDependency(LOST), config=CONFIG + table)
    assert ended.result == {"id": "ch-7"}


async def test_what_succeeds_or_deduplicates_is_not_asked_about() -> None:
    asked_by(broken)
    bank = FakeDependency({"id": "ch-1"})
    ended = await run_handler(charge, {"order": "o-1"}, bank, config=CONFIG)
    assert (ended.status, ended.attempt_count) == ("succeeded", 1)
    bank = FakeDependency(LOST, {"id": "ch-1"})
    ended = await run_handler(charge, {"order": "o-1"}, bank, config=CONFIG.replace('header = ""', ""))
    assert (ended.status, ended.attempt_count) == ("succeeded", 2)
