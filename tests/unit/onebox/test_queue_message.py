from datetime import UTC, datetime

import pytest
from azure.functions.queue import QueueMessageInConverter
from azure.storage.queue import QueueMessage

from onebox.storage.queues import UndecodableError, decode, encode
from onebox.triggers.queue_trigger import body_datum, metadata_of


@pytest.mark.parametrize("encoding", ["base64", "none"])
def test_what_is_encoded_is_decoded(encoding: str) -> None:
    assert decode(encode("héllo".encode(), encoding), encoding) == "héllo".encode()  # type: ignore[arg-type] # parametrized


@pytest.mark.parametrize("content", ["{}", "abc", "a!==", "é"])
def test_what_is_not_base64_is_refused(content: str) -> None:
    with pytest.raises(UndecodableError):
        decode(content, "base64")


def test_the_function_gets_a_whole_queue_message() -> None:
    message = QueueMessage(content="ignored")
    message.id, message.pop_receipt, message.dequeue_count = "m-1", "receipt", 3
    message.inserted_on = datetime(2026, 11, 21, 10, tzinfo=UTC)
    message.expires_on = datetime(2026, 11, 28, 10, tzinfo=UTC)
    message.next_visible_on = datetime(2026, 11, 21, 10, 10, 0, 5, tzinfo=UTC)
    body = b'{"Id": "of the body"}'
    given = QueueMessageInConverter.decode(body_datum(body), trigger_metadata=metadata_of(message, body))
    assert (given.id, given.pop_receipt, given.dequeue_count) == ("m-1", "receipt", 3)
    assert given.insertion_time == message.inserted_on
    assert given.expiration_time == message.expires_on
    assert given.time_next_visible == message.next_visible_on
    assert given.get_json() == {"Id": "of the body"}


def test_a_body_that_is_no_text_stays_bytes() -> None:
    assert (body_datum(b"\xff").type, body_datum(b"\xff").value) == ("bytes", b"\xff")
