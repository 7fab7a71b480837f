"""The lists of events that a search goes through, where the app has an outbox."""

from functools import partial

from durable_retry.base.names import EventState
from durable_retry.features.outbox.event_store import find_event, list_pending
from durable_retry.features.outbox.index_store import list_ended
from durable_retry.features.outbox.rules.outbox import OutboxEvent
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import named_ids
from durable_retry_console.finding.found import FoundItem, FoundType
from durable_retry_console.finding.question import ROWS_READ, FoundList, Items, Question


def lists_of_events(_hub: TaskHub, question: Question) -> dict[str, FoundList]:
    operation_ids, names = frozenset(named_ids(question.words or "")), frozenset({"dependency"})
    return {
        f"{state.value}_events": FoundList(
            FoundType.EVENT, EventState, names, partial(_list_of_events, question, state, operation_ids)
        )
        for state in EventState
    }


async def _list_of_events(
    question: Question, state: EventState, operation_ids: frozenset[str], limit: int, cursor: str | None
) -> Items:
    rows = limit if question.words is None else max(limit, ROWS_READ)
    if state is EventState.PENDING:
        events, following = await list_pending(rows, cursor)
    else:
        events, following = await list_ended(state, rows, cursor)
    if question.words is not None and cursor is None and (named := await find_event(question.words)):
        if named.event.state is state:
            events = [named.event.listed()]
        return [found_event(event) for event in events if event.event_id == question.words], None
    names = ("event_id", "operation_id", "type", "queue", "dependency", "path", "detail")
    return [
        found_event(event)
        for event in events
        if event.operation_id in operation_ids
        or question.has_words(*(getattr(event, name) for name in names))
    ], following


def found_event(event: OutboxEvent) -> FoundItem:
    return FoundItem(
        type=FoundType.EVENT,
        id=event.event_id,
        name=event.type,
        status=event.state,
        dependency=event.dependency,
        operation_id=event.operation_id,
        error=event.detail,
        created_at=event.created_at,
        unreadable=event.unreadable,
    )
