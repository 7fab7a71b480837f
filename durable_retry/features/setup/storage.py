"""Make the queues and tables of the app in its storage account.

A table is also made by its first use; a queue is not made by its trigger.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Literal

from azure.core.exceptions import HttpResponseError
from pydantic import Field

from durable_retry.base.answers import Answer, left_out
from durable_retry.base.names import OPERATIONS_QUEUE, POISON_QUEUE, QUEUE_SOURCE
from durable_retry.plugins import plugins
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import registration
from durable_retry.storage import queues, tables

CORE_TABLES: Final = (
    "durable_retry.dead_letters.index:TABLE",
    "durable_retry.dead_letters.records:TABLE",
    "durable_retry.attempt.commits:INDEX_TABLE",
    "durable_retry.attempt.commits:TABLE",
    "durable_retry.attempt.markers:TABLE",
    "durable_retry.storage.rounds:TABLE",
    "durable_retry.hub.instance_lists:TABLE",
)


def tables_wanted() -> list[str]:
    """Return the names of the tables of the core and of what plugs in."""
    references = (*CORE_TABLES, *(table for plugin in plugins() for table in plugin.tables))
    return sorted(imported(reference) for reference in references)


class SetUpState(StrEnum):
    """What became of a queue or a table."""

    MADE = "made"
    PRESENT = "present"
    REFUSED = "refused"


class SetUpItem(Answer):
    """A queue or a table that the app needs."""

    kind: Literal["queue", "table"] = Field(description="`queue` or `table`.")
    name: str
    state: SetUpState = Field(
        description="`present`: it was there; `refused`: the app's identity may not look or make it."
    )
    detail: str | None = left_out("Why it was refused.")


class SetUp(Answer):
    """What the app needs in its storage account, queues first."""

    items: list[SetUpItem]


async def set_up() -> SetUp:
    """Make the queues and tables that are missing; what is there stays as it is.

    Raises:
        azure.core.exceptions.AzureError: The account does not answer.
    """
    wanted = (OPERATIONS_QUEUE, POISON_QUEUE) if registration().wants(QUEUE_SOURCE) else ()
    items = await asyncio.gather(
        *(_item("queue", name, queues.make) for name in wanted),
        *(_item("table", name, tables.make) for name in tables_wanted()),
    )
    return SetUp(items=items)


async def _item(
    kind: Literal["queue", "table"], name: str, make: Callable[[str], Awaitable[bool]]
) -> SetUpItem:
    try:
        state = SetUpState.MADE if await make(name) else SetUpState.PRESENT
    except HttpResponseError as error:
        if error.status_code != HTTPStatus.FORBIDDEN:
            raise
        return SetUpItem(kind=kind, name=name, state=SetUpState.REFUSED, detail=tables.first_line(error))
    return SetUpItem(kind=kind, name=name, state=state)
