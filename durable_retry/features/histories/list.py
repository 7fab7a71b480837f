"""Histories of orchestrations, the engine's and the app's own, as the task hub stores them."""

import asyncio
from typing import Any, Final

from durabletask.client import OrchestrationStatus
from pydantic import Field

from durable_retry.base.answers import Answer, Page
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.hub.task_hub import Selection, TaskHub

_UNDER_WAY: Final = frozenset({OrchestrationStatus.RUNNING, OrchestrationStatus.SUSPENDED})


class InstanceHistory(Answer):
    """The history of one orchestration."""

    instance_id: str = Field(description="Of the orchestration.")
    events: list[dict[str, Any]] = Field(
        description="Events of its present execution, `HistoryEvent` of durabletask in JSON."
    )


async def histories(hub: TaskHub, token: str | None, *, completed: bool) -> Page[InstanceHistory]:
    """Read a page of the histories of what is under way; with `completed` also of what has completed."""
    statuses = _UNDER_WAY | ({OrchestrationStatus.COMPLETED} if completed else set())
    # With payloads, which bound the size of the page: a history is no smaller than they are.
    selection = Selection(runtime_statuses=statuses, with_payloads=True, prefix="")
    try:
        instances, following = await hub.instance_page(selection, token)
    except TaskHubUnavailableError as error:
        if token is not None and "INVALID_ARGUMENT" in str(error):
            raise InvalidInputError(
                [Problem("/cursor", "the cursor is not from an answer of this list")]
            ) from error
        raise
    # Azure Storage lists entities among the instances.
    ids = [found.instanceId for found in instances if not found.instanceId.startswith("@")]
    read = await asyncio.gather(*map(hub.read_history, ids))
    items = (InstanceHistory(instance_id=name, events=events) for name, events in zip(ids, read, strict=True))
    return Page(items=tuple(items), next_cursor=following)
