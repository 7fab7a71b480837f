"""Restarts of sagas, written down before they are started: a start that comes late runs nothing old.

The task hub starts an orchestration in place of any that has ended, whatever was restarted meanwhile. So a
run goes by what is written here, not by the input that it was started with:

    table `Workflows`, PK <saga id>
    RK `restart`                 the latest restart: who wrote it, and how far it is
    RK `restart-<token>-0000`    the saga as that restart is to run it, in parts
    RK `restart-<token>.end-0000`    the saga as it ended

    written ──a run begins with it──> begun ──the run ends──> ended

A restart is written in place of the one that was read before the saga was, on condition that this is
unchanged: neither was another written since, nor did a run begin with it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.workflows.shapes import Saga
from durable_retry.stores.storage import contents, tables
from durable_retry.stores.workflows import LISTS_TABLE

_KEY: Final = "restart"
_PART_CHARS: Final = 300_000
"""A row holds 1 MiB of UTF-16."""


class RestartStage(StrEnum):
    """How far a restart is."""

    WRITTEN = "written"
    BEGUN = "begun"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRestart(JsonShape):
    """The latest restart of a saga; `token` is of the request that wrote it."""

    token: str
    stage: RestartStage = RestartStage.WRITTEN


class RestartedElsewhereError(Exception):
    """Another restart of the saga was written, or began, since it was read."""


async def latest_restart(saga_id: str) -> LatestRestart | None:
    """Return the latest restart of a saga; None before the first."""
    row = await tables.read(LISTS_TABLE, saga_id, _KEY)
    return None if row is None else _restart_of_row(row)


async def write_restart(saga: Saga, token: str, before: LatestRestart | None) -> None:
    """Write a restart in place of the one that was read. Idempotent.

    Raises:
        RestartedElsewhereError: That is not the latest one any more.
        ContendedError: Others are changing it at this moment.
    """
    written = LatestRestart(token=token)

    def rule(stored: LatestRestart | None) -> LatestRestart:
        if stored is not None and stored.token == token:
            return stored
        if stored != before:
            raise RestartedElsewhereError(saga.saga_id)
        return written

    await _write_parts(saga.saga_id, written, saga.to_json())
    await _change_restart(saga.saga_id, rule)


async def begin_restart(saga_id: str, token: str) -> LatestRestart:
    """Note that a run begins which a restart has started, and return the restart that it runs. Idempotent.

    Where the latest one has ended, its run is over.
    """

    def rule(stored: LatestRestart | None) -> LatestRestart:
        known = stored or LatestRestart(token=token)
        return replace(known, stage=RestartStage.BEGUN) if known.stage is RestartStage.WRITTEN else known

    return await _change_restart(saga_id, rule)


async def read_restart(saga_id: str, restart: LatestRestart) -> dict[str, Any]:
    """Return the JSON form of the saga as a restart is to run it, or as it ended."""
    prefix = f"{_KEY}-{_name_of(restart)}-"
    page = await tables.rows_between(LISTS_TABLE, saga_id, after=prefix, before=f"{prefix}~")
    saga: dict[str, Any] = json.loads("".join(contents.unpacked("saga", row) for row in page.rows))
    return saga


async def end_restart(saga_id: str, token: str, saga: dict[str, Any]) -> None:
    """Keep how the run of a restart ended; `saga` is the JSON form of a `Saga`. Idempotent."""
    ended = LatestRestart(token=token, stage=RestartStage.ENDED)

    def rule(stored: LatestRestart | None) -> LatestRestart:
        return ended if stored is None or stored.token == token else stored

    await _write_parts(saga_id, ended, saga)
    await _change_restart(saga_id, rule)


async def _change_restart(
    saga_id: str, rule: Callable[[LatestRestart | None], LatestRestart]
) -> LatestRestart:
    keys = {"PartitionKey": saga_id, "RowKey": _KEY}
    return await tables.change_row(
        LISTS_TABLE, keys, rule, read=_restart_of_row, write=lambda restart: restart.to_json()
    )


def _restart_of_row(row: tables.Row) -> LatestRestart:
    return LatestRestart.from_json({"token": row["token"], "stage": row["stage"]})


async def _write_parts(saga_id: str, restart: LatestRestart, saga: dict[str, Any]) -> None:
    text = json.dumps(saga)
    for number, at in enumerate(range(0, len(text), _PART_CHARS)):
        keys = {"PartitionKey": saga_id, "RowKey": f"{_KEY}-{_name_of(restart)}-{number:04d}"}
        await tables.merge(LISTS_TABLE, keys | contents.packed("saga", text[at : at + _PART_CHARS]))


def _name_of(restart: LatestRestart) -> str:
    return f"{restart.token}.end" if restart.stage is RestartStage.ENDED else restart.token
