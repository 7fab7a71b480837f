from typing import Any, Final

import pytest

from durable_retry.base.validation import InvalidInputError
from durable_retry.features.replay.actions import prepare
from durable_retry.features.replay.rules import ReplayBody
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.dead_letters.record import of_operation
from durable_retry.settings.configuration import using
from tests.support.builders import NOON, an_entry, an_operation

CONFIG: Final = parse_config('[dependencies.payments]\nbase_url = "https://payments.example.com"', {})
REFERRING: Final = {
    "method": "POST",
    "path": "/c",
    "query": {},
    "headers": {},
    "json": {"for": {"$result": "reserve#/json/id"}},
}


def replayed_json(source: str, attempts: list[dict[str, Any]]) -> Any:
    operation = an_operation(source=source, request=REFERRING)
    entry = an_entry("op-1") | {"operation": operation.to_json(), "attempts": attempts}
    with using(CONFIG):
        request = prepare(of_operation(entry, NOON), ReplayBody(), NOON).operation.request
    return (request or {})["json"]


def test_a_saga_step_that_waits_for_a_result_is_not_sent_with_the_reference_to_it() -> None:
    with pytest.raises(InvalidInputError, match="/request/json/for: is a reference"):
        replayed_json("saga", [])


def test_what_was_sent_as_it_is_written_is_sent_so_again() -> None:
    assert replayed_json("saga", an_entry("op-1")["attempts"]) == REFERRING["json"]
    assert replayed_json("http", []) == REFERRING["json"]
