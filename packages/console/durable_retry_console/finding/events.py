"""The lists of events that a search goes through, where the app has an outbox."""

from functools import partial
from typing import Final

from durable_retry.base.names import EventState
from durable_retry.features.outbox.event_store import find_event, list_pending
from durable_retry.features.outbox.index_store import list_ended
from durable_retry.features.outbox.rules.outbox import OutboxEvent
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import named_ids
from durable_retry_console.finding.question import ROWS_READ, FoundItem, FoundList, FoundType, Items, Question


async def _read_events(
    state: EventState, _hub: TaskHub, question: Question, limit: int, cursor: str | None
) -> Items:
    rows = limit if question.words is None else max(limit, ROWS_READ)
    if state is EventState.PENDING:
        events, following = await list_pending(rows, cursor)
    else:
        events, following = await list_ended(state, rows, cursor)
    if question.words is not None and cursor is None and (named := await find_event(question.words)):
        if named.event.state is state:
            events = [named.event.listed()]
        return [_found(event) for event in events if event.event_id == question.words], None
    operation_ids = named_ids(question.words or "")
    names = ("event_id", "operation_id", "type", "queue", "dependency", "path", "detail")
    return [
        _found(event)
        for event in events
        if event.operation_id in operation_ids
        or question.has_words(*(getattr(event, name) for name in names))
    ], following


def _found(event: OutboxEvent) -> FoundItem:
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


LISTS: Final = {
    f"{state}_events": FoundList(FoundType.EVENT, EventState, ("dependency",), partial(_read_events, state))
    for state in EventState
}
