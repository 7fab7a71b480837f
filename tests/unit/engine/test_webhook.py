"""Standard Webhooks: signatures against known ones, and what a receiver refuses."""

import base64
from datetime import UTC, datetime, timedelta

import pytest

from engine.secret import Secret
from engine.webhook import WebhookSecretError, is_genuine, signature, signed_headers, signing_key

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


def test_while_secrets_rotate_either_of_them_verifies() -> None:
    old, new = signing_key(SECRET), signing_key(OTHER)
    headers = signed_headers(MESSAGE_ID, BODY, [new, old], SENT)
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert is_genuine(headers, BODY, [old], SENT)
    assert is_genuine(headers, BODY, [new], SENT)


@pytest.mark.parametrize(
    "changes",
    [
        {"webhook-id": "msg_other"},
        {"webhook-timestamp": "1614265331"},
        {"webhook-timestamp": "soon"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
        {"webhook-signature": "v1,\u00e9"},
    ],
)
def test_what_was_changed_on_the_way_is_refused(changes: dict[str, str]) -> None:
    headers = signed_headers(MESSAGE_ID, BODY, [signing_key(SECRET)], SENT)
    assert not is_genuine(headers | changes, BODY, [signing_key(SECRET)], SENT)


def test_another_body_or_another_secret_is_refused() -> None:
    headers = signed_headers(MESSAGE_ID, BODY, [signing_key(SECRET)], SENT)
    assert not is_genuine(headers, BODY + " ", [signing_key(SECRET)], SENT)
    assert not is_genuine(headers, BODY, [signing_key(OTHER)], SENT)


@pytest.mark.parametrize(("minutes", "accepted"), [(-6, False), (-5, True), (5, True), (6, False)])
def test_five_minutes_are_the_tolerance(minutes: int, *, accepted: bool) -> None:
    headers = signed_headers(MESSAGE_ID, BODY, [signing_key(SECRET)], SENT)
    now = SENT + timedelta(minutes=minutes)
    assert is_genuine(headers, BODY, [signing_key(SECRET)], now) is accepted


@pytest.mark.parametrize("length", [23, 65, 0])
def test_a_secret_of_the_wrong_length_cannot_sign(length: int) -> None:
    with pytest.raises(WebhookSecretError, match=f"{length} bytes"):
        signing_key(Secret("whsec_" + base64.b64encode(b"x" * length).decode()))


def test_a_secret_that_is_not_base64_cannot_sign_and_is_not_shown() -> None:
    with pytest.raises(WebhookSecretError) as raised:
        signing_key(Secret("whsec_this is not base64"))
    assert "this is" not in str(raised.value)
