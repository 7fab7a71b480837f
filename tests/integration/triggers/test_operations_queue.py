import base64
import json
import logging
from typing import Any

import pytest

from engine.config import parse_config
from stores import task_hub
from stores.configuration import using
from stores.dead_letters import keep_message
from stores.task_hub import TaskHubUnavailableError
from tests.task_hub_stage import TaskHubStage, binding_for
from tools.processes import free_port
from triggers import operations_queue
from triggers.operations_queue import take_message

CALL: dict[str, Any] = {
    "dependency": "payments",
    "request": {"method": "POST", "path": "/charges", "json": {}},
}


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The dead letters that were written."""
    letters: list[dict[str, Any]] = []

    async def keep_and_tell(text: str, **more: Any) -> str:
        letters.append({"text": text, **more})
        return await keep_message(text, **more)

    monkeypatch.setattr(operations_queue, "keep_message", keep_and_tell)
    return letters


@pytest.mark.parametrize("encode", [str, lambda text: base64.b64encode(text.encode()).decode()])
async def test_a_message_starts_its_operation_once(hub: TaskHubStage, encode: Any) -> None:
    for _ in range(2):
        await take_message(hub.binding, encode(json.dumps(CALL | {"key": "k"})), message_id="m-1")
    started = [item async for item in task_hub.scan_operations(hub.binding, created_after=None, cursor=None)]
    assert len(started) == 1


async def test_a_message_without_a_key_takes_its_own_id(hub: TaskHubStage) -> None:
    for message_id in ("m-1", "m-1", "m-2"):
        await take_message(hub.binding, json.dumps(CALL), message_id=message_id)
    started = [item async for item in task_hub.scan_operations(hub.binding, created_after=None, cursor=None)]
    assert {item.instance.input["operation"]["key"] for item in started} == {"m-1", "m-2"}


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not json", "MalformedJson"),
        ("", "MalformedJson"),
        ("[]", "ValidationFailed"),
        (json.dumps(CALL | {"dependency": "nobody"}), "UnknownDependency"),
        (json.dumps(CALL | {"retry": {"max_attempts": 99}}), "ValidationFailed"),
    ],
)
async def test_a_bad_message_is_kept_and_done(
    hub: TaskHubStage, kept: list[dict[str, Any]], text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await take_message(hub.binding, text, message_id="m-1")
    assert [(letter["reason"].value, letter["text"]) for letter in kept] == [(reason, text)]
    assert all(record.exc_info is None for record in caplog.records)


@pytest.mark.usefixtures("storage")
async def test_a_key_that_stands_for_another_request_is_kept(
    hub: TaskHubStage, kept: list[dict[str, Any]]
) -> None:
    await take_message(hub.binding, json.dumps(CALL | {"key": "k"}), message_id="m-1")
    other = CALL | {"key": "k", "request": {"method": "GET", "path": "/"}}
    await take_message(hub.binding, json.dumps(other), message_id="m-2")
    assert len(kept) == 1


async def test_trouble_of_our_own_leaves_the_message_to_the_queue() -> None:
    config = parse_config('[dependencies.payments]\nbase_url = "http://127.0.0.1:9"', {})
    with using(config), pytest.raises(TaskHubUnavailableError):
        await take_message(binding_for(free_port()), json.dumps(CALL), message_id="m-1")
    await task_hub.close_clients()
