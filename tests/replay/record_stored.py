"""`python -m tests.replay.record_stored`; see `stored`."""

import asyncio
import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain
from pathlib import Path
from types import ModuleType, NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAliasType,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from unittest.mock import patch
from zipfile import ZipFile

from durable_retry.engine.limits.limiter import Limiter, SlotRequest, acquire, slot_answer_to_json
from durable_retry.engine.limits.settings import LimitSettings
from durable_retry.engine.operations.debounce import DebounceRequest
from tests.replay.last_release import ARCHIVE, alone
from tests.replay.stored import TODAY, Documents, keep, load, stored_classes, todays_classes
from tests.replay.stored_rows import account, read_every_row, rows_of, write_every_row
from tests.simulation.entities import Operated
from tests.simulation.history import CallActivity, CallEntity, Completed, Raised, Replied
from tests.simulation.messages import Instance
from tests.simulation.story import Story, simulated
from tests.support.builders import NOON

SEEDS: Final = (1, 2, 3, 9, 14)
_OPERATIONS: Final = 40


def main() -> None:
    """Add what the golden files do not hold yet."""
    keep(TODAY, "records", added(load(TODAY, "records"), records()))
    keep(TODAY, "needed", needed() | load(TODAY, "needed"))
    keep(ARCHIVE.stem, "records", added(load(ARCHIVE.stem, "records"), _records_of_release()))
    keep(TODAY, "messages", added(load(TODAY, "messages"), _messages()))
    asyncio.run(_record_rows())


def added(held: Documents, more: Iterable[tuple[str, Any]]) -> Documents:
    """Return documents with those that have a member, or a member of a type, that none before them has."""
    seen = {name: set(chain.from_iterable(map(_members, documents))) for name, documents in held.items()}
    documents = {name: list(known) for name, known in held.items()}
    for name, document in more:
        members = set(_members(document))
        if not members <= seen.setdefault(name, set()):
            seen[name] |= members
            documents.setdefault(name, []).append(document)
    return documents


def _members(document: Any, path: str = "") -> Iterator[tuple[str, str]]:
    yield path, type(document).__name__
    if isinstance(document, dict):
        for name, value in document.items():
            # Members that are named by a number, a key or an id are one.
            yield from _members(value, f"{path}/{re.sub(r'[0-9]+', '0', name)}")
    elif isinstance(document, list):
        for value in document:
            yield from _members(value, f"{path}/0")


# Records: one with all members, one with those that must be there.


def records() -> Iterator[tuple[str, Any]]:
    """Give what today's classes write."""
    for name, cls in todays_classes().items():
        for is_full in (True, False):
            yield name, sample(cls, is_full=is_full).to_json()


def needed() -> Documents:
    """Return the members that must be there, of each class that is stored as an object."""
    found: Documents = {}
    for name, cls in todays_classes().items():
        document = sample(cls).to_json()
        if isinstance(document, dict):
            found[name] = [[member for member in document if is_needed(cls, document, member)]]
    return found


def is_needed(cls: type[Any], document: Mapping[str, Any], member: str) -> bool:
    """Whether a document cannot be read without a member."""
    try:
        cls.from_json({name: value for name, value in document.items() if name != member})
    except (LookupError, ValueError):
        return True
    return False


def sample(cls: type[Any], *, is_full: bool = True) -> Any:
    """Return an instance with a value in every field, or only in those that have no default."""
    hints = get_type_hints(cls, include_extras=True)
    given = {
        each.name: _value(hints[each.name], each.name)
        for each in fields(cls)
        if is_full or (each.default is each.default_factory)  # Both are MISSING.
    }
    return cls(**given)


_TEXTS: Final = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
"""Members that are read only in a form of their own."""


def _value(hint: Any, name: str) -> Any:
    while isinstance(hint, TypeAliasType) or get_origin(hint) is Annotated:
        hint = hint.__value__ if isinstance(hint, TypeAliasType) else get_args(hint)[0]
    origin, arguments = get_origin(hint), get_args(hint)
    if NoneType in arguments:
        return _value(next(each for each in arguments if each is not NoneType), name)
    if origin is Literal:
        return arguments[-1]
    if origin is tuple:
        inner = arguments[:1] if arguments[-1] is ... else arguments
        return tuple(_value(each, name) for each in inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        # A counter names the type of its members only.
        return {_value(arguments[0], "member"): _value((*arguments, int)[1], name)}
    return _plain(hint, name)


def _plain(hint: Any, name: str) -> Any:
    if is_typeddict(hint):
        return {"member": _value(Any, name)}
    if hint is Any:
        return {"text": "é", "list": [1, 1.0, None, True]}
    if isinstance(hint, type) and is_dataclass(hint):
        return sample(hint)
    if issubclass(hint, Enum):
        return next(iter(hint))
    known = {
        str: _TEXTS.get(name, name),
        int: 7,
        float: 1.5,
        bool: True,
        datetime: NOON + timedelta(milliseconds=250),
    }
    return known[hint]


def _modules_of(archive: Path) -> Iterator[ModuleType]:
    for file in ZipFile(archive).namelist():
        if file.startswith("durable_retry/engine/"):
            yield importlib.import_module(
                file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            )


_CALLED_NOW: Final = {"Step": "SagaStep"}
"""Names that classes of 0.1.0 have now."""


def _records_of_release() -> Iterator[tuple[str, Any]]:
    """Give what the last release's classes write after they read what today's wrote."""
    documents = load(TODAY, "records")
    with alone(ARCHIVE):
        for old_name, cls in stored_classes(_modules_of(ARCHIVE)).items():
            name = _CALLED_NOW.get(old_name, old_name)
            for document in documents.get(name, []):
                yield name, cls.from_json(document).to_json()


# Messages of simulated worlds.


def _messages() -> Iterator[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    ended, changed = Story.ended, Story.changed

    def instance_ended(story: Story, instance: Instance) -> None:
        found.extend(_messages_of(instance))
        ended(story, instance)

    def entity_changed(story: Story, operated: Operated) -> None:
        found.append((f"input of {operated.operation}", operated.given))
        found.append((f"state of {operated.name}", operated.after))
        changed(story, operated)

    with patch.object(Story, "ended", instance_ended), patch.object(Story, "changed", entity_changed):
        for seed in SEEDS:
            simulated(seed, _OPERATIONS, without=("newer", "rolled_back"))
    found.extend(_limited())
    found.append(("input of withdraw", sample(DebounceRequest).to_json()))
    return ((name, document) for name, document in found if document not in (None, {}))


def _limited() -> Iterator[tuple[str, Any]]:
    """Give what a limiter is asked, answers and stores; no dependency of a simulated world has limits."""
    limiter, request = Limiter(), replace(sample(SlotRequest), pace=None, reserved=False, waited=False)
    for lease_id in ("first", "second"):
        settings = LimitSettings(max_concurrency=1, rate_per_second=0.5)
        asked = replace(request, lease_id=lease_id, settings=settings)
        limiter, answer = acquire(limiter, asked, NOON)
        yield "input of acquire", asked.to_json()
        yield "answer of acquire", slot_answer_to_json(answer)
        yield "state of call_limiter", limiter.to_json()


def _messages_of(instance: Instance) -> Iterator[tuple[str, Any]]:
    yield f"input of {instance.name}", json.loads(instance.input)
    yield f"output of {instance.name}", json.loads(instance.output or "null")
    yield f"custom status of {instance.name}", json.loads(instance.custom_status or "null")
    names: dict[int | str, str] = {}
    for event in instance.past:
        match event:
            case CallActivity():
                names[event.number] = event.name
                yield f"input of {event.name}", json.loads(event.input)
            case Completed():
                yield f"answer of {names[event.number]}", json.loads(event.result)
            case CallEntity():
                names[event.request_id] = event.operation
            case Replied():
                yield f"answer of {names[event.request_id]}", json.loads(event.output)
            case Raised():
                yield f"event {event.name}", json.loads(event.data or "null")
            case _:
                pass


# Rows.


async def _record_rows() -> None:
    held = load(TODAY, "rows")
    with account({}) as written:
        await write_every_row()
        rows = rows_of(written)
    for table, of_table in held.items():
        known = {(row["PartitionKey"], row["RowKey"]) for row in of_table}
        new = [row for row in rows.get(table, []) if (row["PartitionKey"], row["RowKey"]) not in known]
        rows[table] = of_table + new
    keep(TODAY, "rows", rows)
    with account(rows) as filled:
        answers = await read_every_row(filled)
    keep(TODAY, "answers", {name: [answer] for name, answer in answers.items()})


if __name__ == "__main__":
    main()
