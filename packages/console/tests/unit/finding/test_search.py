"""The search over lists in memory: one order over all of them, pages without a gap, which lists it asks."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from durable_retry.base.answers import Page
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import EventState, Priority
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.dead_letter_lists.pages import DeadLetterPage
from durable_retry.features.outbox.rules.outbox import OutboxEvent
from durable_retry.features.workflows.rules.document import BatchSummary, SagaDocument, counts_of
from durable_retry.features.workflows.rules.shapes import BatchState
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import named_ids
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.facts import TargetType
from durable_retry.settings.configuration import using
from durable_retry_console import optional
from durable_retry_console.activity.shapes import ActivityFilter, ActivityItem, ActivityKind, ActivityTarget
from durable_retry_console.bulk.document import BulkActionDocument
from durable_retry_console.finding import events, workflows
from durable_retry_console.finding import search as search_module
from durable_retry_console.finding.question import BadCursorError, FoundType, Question
from durable_retry_console.finding.search import search
from tests.support.builders import NOON

ANY = Question()


@dataclass
class Lists:
    """What each list has, the newest first.

    Attributes:
        operations: Status documents.
        events: Documents by state.
        batches: Documents.
        asked: How often each list was read.
        gap: Empty pages, each with a cursor, before the first operation.
    """

    operations: list[dict[str, Any]] = field(default_factory=list)
    events: dict[EventState, list[OutboxEvent]] = field(default_factory=dict)
    batches: list[BatchSummary] = field(default_factory=list)
    activity: list[ActivityItem] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    gap: int = 0

    async def find_operations(
        self, _hub: TaskHub, _wanted: Question, *, limit: int, cursor: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        self.asked["operations"] += 1
        at = int(cursor or -self.gap)
        if at < 0:
            return [], str(at + 1)
        page, following = paged(self.operations, limit, cursor and str(at))
        return page, following

    async def list_dead_letters(self, *_: Any, **__: Any) -> DeadLetterPage:
        self.asked["dead_letters"] += 1
        return DeadLetterPage([], None)

    async def list_ended(
        self, state: EventState, limit: int, cursor: str | None
    ) -> tuple[list[OutboxEvent], str | None]:
        self.asked[state.value] += 1
        return paged(self.events.get(state, []), limit, cursor)

    async def list_pending(self, limit: int, cursor: str | None) -> tuple[list[OutboxEvent], str | None]:
        return await self.list_ended(EventState.PENDING, limit, cursor)

    async def list_batches(self, limit: int, cursor: str | None) -> Page[BatchSummary]:
        self.asked["batches"] += 1
        items, following = paged(self.batches, limit, cursor)
        return Page[BatchSummary](items=tuple(items), next_cursor=following)

    async def batches_of_key(self, key: str) -> Page[BatchSummary]:
        return Page[BatchSummary](items=tuple(each for each in self.batches if each.key == key))

    async def list_sagas(self, *_: object) -> Page[SagaDocument]:
        self.asked["saga"] += 1
        return Page[SagaDocument](items=())

    async def sagas_of_key(self, *_: object) -> Page[SagaDocument]:
        self.asked["saga of the key"] += 1
        return Page[SagaDocument](items=())

    async def find_activity(
        self, wanted: ActivityFilter, limit: int, cursor: str | None
    ) -> Page[ActivityItem]:
        self.asked["activity"] += 1
        items, following = paged([one for one in self.activity if wanted.matches(one)], limit, cursor)
        return Page[ActivityItem](items=tuple(items), next_cursor=following)

    async def list_bulk_actions(self, *_: object) -> Page[BulkActionDocument]:
        self.asked["bulk_action"] += 1
        return Page[BulkActionDocument](items=())

    async def find_event(self, _event_id: str) -> None:
        return None


def paged[T](items: list[T], limit: int, cursor: str | None) -> tuple[list[T], str | None]:
    begin = int(cursor or 0)
    return items[begin : begin + limit], str(begin + limit) if begin + limit < len(items) else None


def at(age: float) -> str:
    return to_rfc3339(NOON - timedelta(seconds=age))


def operation(number: int, age: float, **more: Any) -> dict[str, Any]:
    names = {"operation_id": f"op-{number}", "key": f"k{number}", "dependency": "payments", "source": "http"}
    state = {"status": "succeeded", "attempt_count": 1, "attempts": [], "next_attempt_at": None}
    unset = {"correlation_id": None, "dead_letter": None}
    return {**names, **state, **unset, "created_at": at(age), **more}


def batch(batch_id: str, age: float) -> BatchSummary:
    return BatchSummary(
        batch_id=batch_id,
        status=BatchState.RUNNING,
        max_concurrency=1,
        tolerated_failures=0,
        counts=counts_of(()),
        created_at=NOON - timedelta(seconds=age),
        finished_at=None,
    )


@pytest.mark.parametrize("priority", [None, *Priority])
async def test_an_operation_is_shown_with_its_priority(lists: Lists, priority: Priority | None) -> None:
    lists.operations = [operation(1, 1, **({} if priority is None else {"priority": priority.value}))]
    page = await search(TaskHub(""), ANY, limit=1, cursor=None)
    assert [one.priority for one in page.items] == [priority or Priority.NORMAL]


async def test_a_batch_is_found_by_its_whole_key(lists: Lists) -> None:
    lists.batches = [batch("batch-1", 1).model_copy(update={"key": "order-7"}), batch("batch-2", 2)]
    assert await pages(Question(key="order-7", kind=FoundType.BATCH)) == [["batch-1"]]
    assert await pages(Question(words="ORDER-7", kind=FoundType.BATCH)) == [["batch-1"]]
    assert lists.asked["batches"] == 1
    assert await pages(Question(key="order-7", kind=FoundType.SAGA)) == [[]]
    assert lists.asked["saga of the key"] == 1


def event(number: int, age: float, state: EventState, **more: Any) -> OutboxEvent:
    names = {"event_id": f"op-{number}-1", "operation_id": f"op-{number}", "type": "charge.completed"}
    unset = dict.fromkeys(("queue", "dependency", "path", "detail"))
    begun = {"created_at": at(age), "pending_since": at(age)}
    return OutboxEvent.read({**names, **unset, "state": state.value, **begun, **more})


@pytest.fixture(autouse=True)
def _renamed() -> Iterator[None]:
    with using(parse_config('[dependencies.pay]\nwas = ["payments"]', {})):
        yield


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Lists:
    lists = Lists()
    for module, names in {
        search_module: ("find_operations", "list_dead_letters", "list_bulk_actions", "find_activity"),
        events: ("find_event", "list_ended", "list_pending"),
        workflows: ("batches_of_key", "list_batches", "list_sagas", "sagas_of_key"),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, getattr(lists, name))
    return lists


async def test_an_event_is_shown_without_the_count_of_its_attempts(lists: Lists) -> None:
    lists.events[EventState.SENT] = [event(1, 1, EventState.SENT, attempt_count=3)]
    (found,) = (await search(TaskHub(""), Question(kind=FoundType.EVENT), limit=5, cursor=None)).items
    assert (found.id, found.name, found.attempt_count) == ("op-1-1", "charge.completed", None)


async def pages(question: Question, limit: int = 50) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = await search(TaskHub(""), question, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        assert list(page.items) == sorted(page.items, key=lambda one: (one.created_at, one.id), reverse=True)
        found.append([one.id for one in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 7, 200])
async def test_the_lists_are_joined_in_one_order_page_by_page(lists: Lists, limit: int) -> None:
    random = Random(7)  # noqa: S311 - places, no secrets
    ages = sorted(random.sample(range(1_000), 90))
    everything = [(age, random.choice(("operation", "sent", "failed", "batch"))) for age in ages]
    for number, (age, kind) in enumerate(everything):
        if kind == "operation":
            lists.operations.append(operation(number, age))
        elif kind == "batch":
            lists.batches.append(batch(f"batch-{number}", age))
        else:
            state = EventState(kind)
            lists.events.setdefault(state, []).append(event(number, age, state))
    expected = [
        {"operation": f"op-{number}", "batch": f"batch-{number}"}.get(kind, f"op-{number}-1")
        for number, (_, kind) in enumerate(everything)
    ]
    assert [each for page in await pages(ANY, limit) for each in page] == expected


async def test_what_is_of_one_instant_is_shown_once(lists: Lists) -> None:
    lists.operations = [operation(number, 9) for number in range(9, -1, -1)]
    lists.events[EventState.SENT] = [event(number, 9, EventState.SENT) for number in range(9, -1, -1)]
    found = [each for page in await pages(ANY, 3) for each in page]
    assert sorted(found) == sorted(f"op-{number}{end}" for number in range(10) for end in ("", "-1"))


async def test_a_list_that_looks_far_goes_on_where_it_was(lists: Lists) -> None:
    lists.gap = 3
    lists.operations = [operation(1, 5)]
    lists.batches = [batch("batch-1", 1)]
    assert await pages(ANY) == [["batch-1"], [], ["op-1"]]
    assert lists.asked["batches"] == 1


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        (Question(kind=FoundType.EVENT), {"pending", "sent", "failed"}),
        (Question(handler="ship"), {"operations", "dead_letters"}),
        (Question(order_key="lane-7"), {"operations", "dead_letters"}),
        (
            Question(dependency="payments"),
            {"operations", "dead_letters", "pending", "sent", "failed", "bulk_action", "activity"},
        ),
        (Question(status="sent", kind=FoundType.EVENT), {"pending", "sent", "failed"}),
        (Question(status="open", kind=FoundType.DEAD_LETTER), {"dead_letters"}),
        (Question(status="bulk", kind=FoundType.ACTIVITY), {"activity"}),
        (Question(status="compensated"), {"saga"}),
    ],
)
async def test_only_lists_that_can_answer_are_read(lists: Lists, question: Question, asked: set[str]) -> None:
    await pages(question)
    assert set(lists.asked) == asked


@pytest.mark.parametrize(
    ("question", "allowed"),
    [
        (Question(status="nope"), {"waiting_retry", "open", "sent", "compensated", "stopped", "settings"}),
        (Question(status="open", kind=FoundType.SAGA), {"compensated"}),
        (Question(status="compensated", kind=FoundType.EVENT), {"sent"}),
    ],
)
async def test_a_status_that_nothing_of_its_type_has_is_refused_with_those_that_it_has(
    lists: Lists, question: Question, allowed: set[str]
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        await pages(question)
    (problem,) = refused.value.problems
    words = problem.detail.removeprefix("must be one of ").split(", ")
    assert (problem.pointer, words) == ("/status", sorted({*words}))
    assert allowed < {*words}
    assert question.status not in words
    assert not lists.asked


async def test_an_app_without_outbox_and_workflows_is_searched_without_their_lists(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional, "features", tuple)
    await pages(ANY)
    assert set(lists.asked) == {"operations", "dead_letters", "bulk_action", "activity"}
    assert await pages(Question(kind=FoundType.SAGA, status="compensated")) == [[]]


async def test_words_are_looked_for_in_every_name_of_an_event(lists: Lists) -> None:
    failed = event(1, 1, EventState.FAILED, detail="the webhook answered 410", dependency="hooks")
    lists.events[EventState.FAILED] = [failed, event(2, 2, EventState.FAILED)]
    assert await pages(Question(words="HOOKS 410")) == [["op-1-1"]]
    assert await pages(Question(words="charge")) == [["op-1-1", "op-2-1"]]
    assert await pages(Question(words="nothing")) == [[]]


async def test_who_did_what_is_found_by_words_and_by_the_key_of_an_operation(lists: Lists) -> None:
    key_id = named_ids("order-42")[1]
    lists.activity = [
        act("cancelled the operation", TargetType.OPERATION, key_id, reason="a duplicate"),
        act("opened the circuit", TargetType.CIRCUIT, "payments", dependency="payments"),
    ]
    assert await pages(Question(words="order-42")) == [[key_id]]
    assert await pages(Question(words="duplicate ADA")) == [[key_id]]
    for name in ("payments", "pay"):
        assert await pages(Question(dependency=name, kind=FoundType.ACTIVITY)) == [["payments"]]
    page = await search(TaskHub(""), Question(words="duplicate"), limit=9, cursor=None)
    (found,) = page.items
    assert (found.name, found.status, found.error) == (
        "ada cancelled the operation",
        "action",
        "a duplicate",
    )
    assert found.operation_id == key_id


def act(what: str, kind: TargetType, target_id: str, **more: Any) -> ActivityItem:
    target = ActivityTarget(type=kind, id=target_id, url=None)
    return ActivityItem(at=NOON, kind=ActivityKind.ACTION, who="ada", what=what, target=target, **more)


async def test_an_item_says_in_one_line_why_an_operation_did_not_go_through(lists: Lists) -> None:
    attempts = [{"error": "status 503"}]
    letter = {"id": "dl-1", "reason": "RetriesExhausted", "detail": "status 503 after 5 attempts"}
    lists.operations = [
        operation(1, 1, attempts=attempts),
        operation(2, 2, attempts=attempts, status="waiting_retry", next_attempt_at=at(-9)),
        operation(3, 3, attempts=attempts, status="dead_lettered", dead_letter=letter),
    ]
    page = await search(TaskHub(""), ANY, limit=9, cursor=None)
    assert [(one.error, one.dead_letter_id) for one in page.items] == [
        (None, None),
        ("status 503", None),
        ("RetriesExhausted: status 503 after 5 attempts", "dl-1"),
    ]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "bm90IGpzb24=",
        "e30=",
        "eyJvcGVyYXRpb25zIjogWzEsIFsxXV19",
        "eyJvcGVyYXRpb25zIjogW251bGwsIHsiYSI6IDF9XX0=",
    ],
)
@pytest.mark.usefixtures("lists")
async def test_a_cursor_from_elsewhere_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursorError):
        await search(TaskHub(""), ANY, limit=9, cursor=cursor)
