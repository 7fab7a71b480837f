from collections.abc import Iterator
from typing import Any

import azure.functions as func
import pytest
from azure.core.exceptions import ServiceRequestError
from azure.storage.queue import QueueClient

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.intake import intake as intake_module
from durable_retry.intake import queue as operations_queue
from durable_retry.intake.intake import intake
from durable_retry.intake.queue_triggers import operations_poison
from durable_retry.settings.intake import intake_settings
from durable_retry.storage.queues import delete_taken, take_left
from tests.support.azurite import Storage

DELIVERIES = 4
BODY = '{"dependency": "payments"}'


@pytest.fixture
def queue(own_tables: Storage, key: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueClient]:
    name = f"poison-{abs(hash(key))}"
    monkeypatch.setattr(operations_queue, "POISON_QUEUE", name)
    intake_settings.cache_clear()
    intake.cache_clear()
    client = own_tables.queue(name)
    client.create_queue()
    yield client
    client.close()


def delivered(queue: QueueClient, times: int) -> None:
    """Deliver the message in front so often, in vain."""
    for _ in range(times):
        (message,) = queue.receive_messages(max_messages=1)
        queue.update_message(message, visibility_timeout=0)


async def swept() -> list[Any]:
    await operations_queue.keep_left_poison()
    return list((await list_dead_letters(DeadLetterFilter(), limit=10, cursor=None)).records)


@pytest.mark.shows("P3")
async def test_what_was_delivered_too_often_is_kept_and_deleted(queue: QueueClient) -> None:
    sent = queue.send_message(BODY)
    delivered(queue, DELIVERIES)
    (letter,) = await swept()
    assert (letter.reason, letter.message, letter.key) == ("PoisonMessage", BODY, sent.id)
    assert letter.first_failed_at == sent.inserted_on
    assert letter.detail.endswith(f"deliveries: 4, the last at {to_rfc3339(letter.first_failed_at)}")
    assert queue.get_queue_properties().approximate_message_count == 0


async def test_what_is_delivered_again_is_left_to_its_trigger(queue: QueueClient) -> None:
    queue.send_message(BODY)
    delivered(queue, DELIVERIES - 1)
    assert await swept() == []
    (message,) = queue.peek_messages()
    assert message.dequeue_count == DELIVERIES - 1


async def test_beside_what_is_left_another_message_stays(queue: QueueClient) -> None:
    queue.send_message(BODY)
    delivered(queue, DELIVERIES)
    queue.send_message('{"second": 2}')
    (letter,) = await swept()
    assert letter.message == BODY
    (message,) = queue.peek_messages()
    assert message.content == '{"second": 2}'


async def test_what_storage_does_not_take_stays_for_the_next_run(
    queue: QueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise ServiceRequestError("storage is away")

    queue.send_message(BODY)
    delivered(queue, DELIVERIES)
    with monkeypatch.context() as trouble:
        trouble.setattr(intake_module, "keep_refused", away)
        with pytest.raises(ServiceRequestError):
            await swept()
    assert queue.get_queue_properties().approximate_message_count == 1


async def test_a_queue_that_does_not_exist_has_nothing_left(queue: QueueClient) -> None:
    queue.delete_queue()
    assert await swept() == []


async def test_who_comes_too_late_deletes_nothing(queue: QueueClient) -> None:
    queue.send_message(BODY)
    delivered(queue, DELIVERIES)
    (taken,) = await take_left(queue.queue_name, DELIVERIES)
    queue.clear_messages()
    await delete_taken(queue.queue_name, taken)


@pytest.mark.shows("P3")
async def test_what_storage_does_not_take_goes_back_as_a_new_message(
    queue: QueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise ServiceRequestError("storage is away")

    monkeypatch.setattr(intake_module, "keep_refused", away)
    poison: Any = operations_poison
    await poison._function._func(func.QueueMessage(id="m-1", body=BODY.encode()))
    assert queue.get_queue_properties().approximate_message_count == 1
