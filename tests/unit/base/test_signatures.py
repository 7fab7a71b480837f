import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from durable_retry.base.signatures import WebhookSecretError, signature, signed_headers, signing_key
from durable_retry.base.text import Secret

SECRET = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
OTHER = Secret(base64.b64encode(b"another secret of thirty-two byt").decode())
BODY = '{"test": 2432232314}'
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
SENT = datetime.fromtimestamp(1614265330, UTC)


def test_a_signature_is_the_published_one() -> None:
    made = signature(signing_key(SECRET), message_id=MESSAGE_ID, timestamp=1614265330, body=BODY)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_headers_name_the_message_the_time_and_the_signature() -> None:
    assert signed_headers(MESSAGE_ID, BODY, [signing_key(SECRET)], SENT) == {
        "webhook-id": MESSAGE_ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_without_a_secret_there_is_no_signature() -> None:
    assert "webhook-signature" not in signed_headers(MESSAGE_ID, BODY, [], SENT)


def test_every_secret_signs_so_that_secrets_can_rotate() -> None:
    old, new = signing_key(SECRET), signing_key(OTHER)
    signatures = signed_headers(MESSAGE_ID, BODY, [new, old], SENT)["webhook-signature"].split(" ")
    assert signatures == [
        signature(key, message_id=MESSAGE_ID, timestamp=1614265330, body=BODY) for key in (new, old)
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"message_id": "msg_other"},
        {"timestamp": 1614265331},
        {"body": BODY + " "},
        {"key": signing_key(OTHER)},
    ],
)
def test_the_signature_covers_key_id_time_and_body(changed: dict[str, Any]) -> None:
    signed: dict[str, Any] = {
        "key": signing_key(SECRET),
        "message_id": MESSAGE_ID,
        "timestamp": 1614265330,
        "body": BODY,
    }
    assert signature(**signed | changed) != signature(**signed)


@pytest.mark.parametrize("length", [24, 64])
def test_a_secret_of_24_to_64_bytes_can_sign(length: int) -> None:
    assert signing_key(Secret(base64.b64encode(b"x" * length).decode())) == b"x" * length


@pytest.mark.parametrize("length", [23, 65, 0])
def test_a_secret_of_the_wrong_length_cannot_sign(length: int) -> None:
    with pytest.raises(WebhookSecretError, match=f"{length} bytes"):
        signing_key(Secret("whsec_" + base64.b64encode(b"x" * length).decode()))


def test_a_secret_that_is_not_base64_cannot_sign_and_is_not_shown() -> None:
    with pytest.raises(WebhookSecretError) as raised:
        signing_key(Secret("whsec_this is not base64"))
    assert "this is" not in str(raised.value)
