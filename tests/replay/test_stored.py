"""What is stored is read back as it was written, also where a member is missing or one is added."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from durable_retry.base.json_forms import JsonShape
from durable_retry.features.workflows.rules.document import SagaDocument
from durable_retry.rules.operations.status import checked_document
from durable_retry_console.bulk.shapes import BulkInput, BulkProgress
from tests.replay.recording import load, shapes
from tests.replay.stored import REWRITES, is_needed, recorded_messages, sample, stored_classes

CLASSES = stored_classes()
OBJECTS = {name: cls for name, cls in CLASSES.items() if isinstance(sample(cls).to_json(), dict)}


def common(stored: Any, written: Any) -> Any:
    """Return of what is written the members that were stored, in the order in which they are written."""
    if isinstance(stored, dict) and isinstance(written, dict):
        return {name: common(stored[name], value) for name, value in written.items() if name in stored}
    if isinstance(stored, list) and isinstance(written, list) and len(stored) == len(written):
        return [common(one, other) for one, other in zip(stored, written, strict=True)]
    return written


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("name", CLASSES)
def test_what_a_class_stores_is_read_and_written_again_byte_for_byte(name: str, *, is_full: bool) -> None:
    cls = CLASSES[name]
    # As text 1, 1.0 and true differ, and so does the order of members.
    text = json.dumps(sample(cls, is_full=is_full).to_json())
    assert json.dumps(cls.from_json(json.loads(text)).to_json()) == text
    if issubclass(cls, JsonShape):
        assert json.dumps(cls.from_json_text(text).to_json()) == text


@pytest.mark.parametrize("name", OBJECTS)
def test_a_member_of_a_later_version_is_ignored(name: str) -> None:
    cls = OBJECTS[name]
    document = sample(cls).to_json()
    later = {"before_all": {"at": 1}, **document, "after_all": [1]}
    assert cls.from_json(later) == cls.from_json(document)


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
def test_a_message_of_a_recorded_history_is_written_again_as_it_was_sent(name: str) -> None:
    documents = [document for _, kind, document in recorded_messages() if kind == name]
    assert documents
    for document in documents:
        written = REWRITES[name](document)
        assert _sorted(common(written, document)) == _sorted(common(document, written))


def _sorted(document: Any) -> str:
    return json.dumps(document, sort_keys=True)


CHECKS: dict[str, Callable[[Any], Any]] = {
    "output of operation": checked_document,
    "input of bulk_action": BulkInput.from_json,
    "output of bulk_action": BulkProgress.from_json,
    "output of saga": SagaDocument.read,
    "input of complete": lambda message: checked_document(message["document"]),
}


def test_nothing_in_a_recorded_history_is_taken_for_unreadable() -> None:
    recorded = [(name, document) for _, name, document in recorded_messages()]
    recorded += [(f"output of {each.history.orchestrator}", each.output) for each in map(load, shapes())]
    checked = {name for name, document in recorded if name in CHECKS and CHECKS[name](document)}
    assert checked == CHECKS.keys()
