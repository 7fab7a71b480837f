import base64
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import QueueClient

from onebox.storage.queues import MessageLostError, StorageQueue
from scripts.processes import eventually
from tests.support.onebox.process import OneboxProcess


def seen(onebox: OneboxProcess, body: str, times: int = 1) -> list[dict[str, Any]]:
    """What the function was given for messages of this body, once it ran so often."""

    def look() -> list[dict[str, Any]] | None:
        runs = [each for each in onebox.client.get("/api/seen").json() if each["body"] == body]
        return runs if len(runs) >= times else None

    return eventually(look, f"{body!r} runs {times} times")


def until_empty(queue: QueueClient) -> None:
    """Waits until the queue holds nothing, not even hidden."""
    eventually(
        lambda: queue.get_queue_properties().approximate_message_count == 0, f"{queue.queue_name} is empty"
    )


def take_from_poison(onebox: OneboxProcess, content: str) -> None:
    """Waits until the poison queue holds a message of exactly this text, and takes it out."""
    poison = onebox.raw_queue("work-poison")

    def look() -> bool:
        for message in poison.receive_messages(messages_per_page=32, visibility_timeout=1):
            if message.content == content:
                poison.delete_message(message)
                return True
        return False

    onebox.until_logged("moved to work-poison")
    eventually(look, f"{content!r} is in the poison queue")


def test_a_message_runs_its_function_with_metadata_and_is_deleted(onebox: OneboxProcess) -> None:
    queue = onebox.queue("work")
    sent = queue.send_message("plain work")
    (run,) = seen(onebox, "plain work")
    assert (run["id"], run["dequeue_count"], run["has_receipt"]) == (sent.id, 1, True)
    assert run["inserted"] == str(sent.inserted_on).replace(" ", "T")
    until_empty(queue)


async def test_a_message_is_deleted_without_the_sdk_which_says_why_one_cannot_be(
    onebox: OneboxProcess,
) -> None:
    client = onebox.raw_queue("bare")
    client.send_message("one")
    client.send_message("two")
    with ThreadPoolExecutor(1) as threads:
        queue = StorageQueue(client, threads)
        received = await queue.receive(2, 60)
        with patch.object(client, "delete_message", side_effect=AssertionError("by the SDK")):
            for message in received:
                await queue.delete(message)
        until_empty(client)
        with pytest.raises(MessageLostError):
            await queue.delete(received[0])
        queue.close()


def test_a_failing_message_is_seen_again_after_the_timeout_and_ends_in_the_poison_queue(
    onebox: OneboxProcess,
) -> None:
    onebox.queue("work").send_message("fail always")
    runs = seen(onebox, "fail always", times=2)
    assert [run["dequeue_count"] for run in runs] == [1, 2]
    assert runs[1]["at"] - runs[0]["ended_at"] >= 0.9  # visibilityTimeout is 1 s, from the end of the run
    take_from_poison(onebox, base64.b64encode(b"fail always").decode())
    until_empty(onebox.queue("work"))
    assert len(seen(onebox, "fail always", times=2)) == 2


def test_a_message_that_is_not_base64_goes_to_the_poison_queue_without_a_run(onebox: OneboxProcess) -> None:
    plain = onebox.raw_queue("work")
    plain.send_message("{not base64}")
    onebox.until_logged(r"message \S+ is not base64; moved to work-poison")
    take_from_poison(onebox, "{not base64}")
    until_empty(plain)


@pytest.mark.parametrize("text", ["a\0b", "\x0b", " \x0c ", "\x1f", "\ufffe"])
def test_a_character_that_xml_lacks_is_refused_as_on_azure_and_hides_no_other_message(
    onebox: OneboxProcess, text: str
) -> None:
    queue = onebox.raw_queue("characters")
    queue.clear_messages()
    sent = queue.send_message(" \t\r\n \ufffd &#0; \U0001f600")
    update = partial(queue.update_message, sent.id, sent.pop_receipt, content=text)
    for refused in (partial(queue.send_message, text), update):
        with pytest.raises(HttpResponseError, match="XML specified is not syntactically valid") as caught:
            refused()
        assert caught.value.status_code == 400
    assert [each.content for each in queue.receive_messages()] == [sent.content]


def test_many_messages_run_once_each(onebox: OneboxProcess) -> None:
    queue = onebox.queue("work")
    for number in range(60):
        queue.send_message(f"many {number}")

    def look() -> bool:
        bodies = [each["body"] for each in onebox.client.get("/api/seen").json()]
        return sorted(each for each in bodies if each.startswith("many")) == sorted(
            f"many {n}" for n in range(60)
        )

    eventually(look, "all 60 ran")
    until_empty(queue)


@pytest.mark.long
def test_a_message_in_flight_at_a_stop_comes_back_at_the_next_start(own_onebox: OneboxProcess) -> None:
    own_onebox.queue("work").send_message("sleep 60")
    seen(own_onebox, "sleep 60")
    assert own_onebox.server.stop() == 0
    own_onebox.server.start()
    (run,) = seen(own_onebox, "sleep 60")
    assert run["dequeue_count"] == 2
