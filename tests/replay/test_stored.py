"""What any version stored is read by today's classes, and what they write is what was stored.

A golden file is never changed: a member that is new has a default and comes with documents of its own, one
that is gone is ignored. See `stored`.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from durable_retry.console.bulk.document import BulkReplayDocument
from durable_retry.console.bulk.shapes import checked_input
from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.operations.status import checked_document
from durable_retry.engine.workflows.document import SagaDocument
from tests.replay.record_stored import added, is_needed, needed, records, sample
from tests.replay.stored import (
    RELEASES,
    REWRITES,
    TODAY,
    Documents,
    load,
    recorded_messages,
    todays_classes,
)
from tests.replay.stored_rows import account, read_every_row

CLASSES = todays_classes()
OBJECTS = {name: cls for name, cls in CLASSES.items() if isinstance(sample(cls).to_json(), dict)}


GONE = {"KeyRecord": {"lease_until"}}
"""Members of releases that today's classes do not have: a claim has had no lease since 0.1.0."""


def common(stored: Any, written: Any) -> Any:
    """Return of what is written the members that were stored, in the order in which they are written."""
    if isinstance(stored, dict) and isinstance(written, dict):
        return {name: common(stored[name], value) for name, value in written.items() if name in stored}
    if isinstance(stored, list) and isinstance(written, list) and len(stored) == len(written):
        return [common(one, other) for one, other in zip(stored, written, strict=True)]
    return written


def text(document: Any, *, in_order: bool = True) -> str:
    """Return JSON, in which 1, 1.0 and true differ, and so does the order of members if it counts."""
    return json.dumps(document, sort_keys=not in_order)


@pytest.mark.parametrize("name", CLASSES)
def test_what_a_class_stored_is_written_again_byte_for_byte(name: str) -> None:
    documents = load(TODAY, "records")[name]
    written = [CLASSES[name].from_json(document).to_json() for document in documents]
    for stored, again in zip(documents, written, strict=True):
        assert text(common(stored, again)) == text(stored)
    if issubclass(CLASSES[name], JsonShape):
        assert [CLASSES[name].from_json_text(text(document)).to_json() for document in documents] == written
    assert any(text(stored) == text(again) for stored, again in zip(documents, written, strict=True))


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_stored_is_read_without_a_loss(release: str) -> None:
    for name, documents in load(release, "records").items():
        for stored in documents:
            written = common(stored, CLASSES[name].from_json(stored).to_json())
            for member in GONE.get(name, ()):
                written[member] = stored[member]
            assert text(written, in_order=False) == text(stored, in_order=False), name


def test_the_golden_files_hold_every_member_of_every_class() -> None:
    held = load(TODAY, "records")
    assert added(held, records()) == held, "run python -m tests.replay.record_stored"


def test_no_member_must_be_there_that_an_older_version_did_not_write() -> None:
    assert needed() == load(TODAY, "needed")


@pytest.mark.parametrize("version", [TODAY, *RELEASES])
@pytest.mark.parametrize("name", OBJECTS)
def test_a_member_of_a_later_version_is_ignored(name: str, version: str) -> None:
    cls = OBJECTS[name]
    for document in load(version, "records").get(name, []):
        newer = {"before_all": {"at": 1}, **document, "after_all": [1]}
        assert cls.from_json(newer) == cls.from_json(document)


@pytest.mark.parametrize("name", [name for name, cls in OBJECTS.items() if issubclass(cls, JsonShape)])
def test_a_missing_member_takes_its_default(name: str) -> None:
    cls = OBJECTS[name]
    full, least = sample(cls).to_json(), sample(cls, is_full=False).to_json()
    for member in full:
        if not is_needed(cls, full, member):
            without = {each: value for each, value in full.items() if each != member}
            expected = without | ({member: least[member]} if member in least else {})
            assert cls.from_json(without) == cls.from_json(expected)


@pytest.mark.parametrize("name", REWRITES)
def test_a_message_is_written_again_as_it_was_sent(name: str) -> None:
    documents = [document for _, kind, document in recorded_messages() if kind == name]
    for version in (TODAY, *RELEASES):
        documents += load(version, "messages").get(name, [])
    assert documents
    for document in documents:
        written = REWRITES[name](document)
        # Older versions wrote some members in another order.
        stored, again = common(written, document), common(document, written)
        assert text(stored, in_order=False) == text(again, in_order=False)


@pytest.mark.parametrize("version", [each for each in (TODAY, *RELEASES) if load(each, "rows")])
async def test_the_stores_read_from_rows_what_was_written(version: str) -> None:
    stored: Documents = load(version, "answers")
    with account(load(version, "rows")) as held:
        answers = await read_every_row(held)
    for name, (answer,) in stored.items():
        assert common(answer, answers[name]) == answer, name


CHECKS: dict[str, Callable[[Any], Any]] = {
    "output of operation": checked_document,
    "input of replay": checked_input,
    "input of bulk_action": checked_input,
    "output of replay": BulkReplayDocument.read,
    "output of bulk_action": BulkReplayDocument.read,
    "custom status of replay": BulkReplayDocument.read,
    "custom status of bulk_action": BulkReplayDocument.read,
    "output of saga": partial(SagaDocument.model_validate, strict=False),
    "input of complete": lambda message: checked_document(message["document"]),
}


def test_nothing_that_any_version_wrote_is_taken_for_unreadable() -> None:
    kept = [(name, each) for version in (TODAY, *RELEASES) for name, each in _messages_of(version)]
    recorded = [(name, document) for _, name, document in recorded_messages()]
    checked = [CHECKS[name](document) for name, document in [*kept, *recorded] if name in CHECKS]
    assert len(checked) > 20


def _messages_of(version: str) -> list[tuple[str, Any]]:
    return [(name, each) for name, documents in load(version, "messages").items() for each in documents]
