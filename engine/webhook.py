"""Standard Webhooks 1.0 (standardwebhooks.com): headers and signatures of a webhook.

The signed text is `id.timestamp.body`; the signature is `v1,` and the base64 of its HMAC-SHA256. With several
secrets there are several signatures, parted by spaces, so that a secret can be replaced while receivers
still know the old one only.
"""

import base64
import hmac
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final

from engine.secret import Secret

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - a prefix that the standard gives, not a secret
SHORTEST_KEY_BYTES: Final = 24
LONGEST_KEY_BYTES: Final = 64
TOLERANCE_SECONDS: Final = 300
"""How far a receiver lets the timestamp be from its own clock."""

_VERSION: Final = "v1"


class WebhookSecretError(ValueError):
    """A secret that cannot sign; the message never shows it."""


def signing_key(secret: Secret) -> bytes:
    """Return the key inside a secret: base64 of 24 to 64 bytes, with or without the prefix `whsec_`.

    Raises:
        WebhookSecretError: It is none.
    """
    text = secret.reveal().removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        raise WebhookSecretError("is not base64, with or without whsec_ before it") from None
    if not SHORTEST_KEY_BYTES <= len(key) <= LONGEST_KEY_BYTES:
        raise WebhookSecretError(
            f"holds {len(key)} bytes; the standard asks for {SHORTEST_KEY_BYTES} to {LONGEST_KEY_BYTES}"
        )
    return key


def signature(key: bytes, *, message_id: str, timestamp: int, body: str) -> str:
    """Return one signature, `v1,...`.

    Args:
        key: From `signing_key`.
        message_id: The event's id, the same for every attempt.
        timestamp: Whole seconds since 1970, of this attempt.
        body: What is sent, exactly.
    """
    signed = f"{message_id}.{timestamp}.{body}".encode()
    digest = hmac.new(key, signed, sha256).digest()
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def signed_headers(message_id: str, body: str, keys: Iterable[bytes], now: datetime) -> dict[str, str]:
    """Return the headers of one attempt; without keys there is no signature.

    Args:
        message_id: The event's id.
        body: What is sent, exactly.
        keys: The newest first; all of them sign.
        now: Of this attempt, aware.
    """
    timestamp = int(now.timestamp())
    headers = {ID_HEADER: message_id, TIMESTAMP_HEADER: str(timestamp)}
    signatures = [signature(key, message_id=message_id, timestamp=timestamp, body=body) for key in keys]
    if signatures:
        headers[SIGNATURE_HEADER] = " ".join(signatures)
    return headers


def is_genuine(headers: Mapping[str, str], body: str, keys: Iterable[bytes], now: datetime) -> bool:
    """Tell whether a webhook was signed with one of the keys and is recent; what a receiver does.

    Args:
        headers: Names in lower case.
        body: What was received, exactly.
        keys: Those that the receiver knows.
        now: The receiver's time, aware.
    """
    message_id, stamp = headers.get(ID_HEADER, ""), headers.get(TIMESTAMP_HEADER, "")
    if not message_id or not (stamp.isascii() and stamp.isdigit()):
        return False
    timestamp = int(stamp)
    if abs(now.timestamp() - timestamp) > TOLERANCE_SECONDS:
        return False
    given = [text.encode() for text in headers.get(SIGNATURE_HEADER, "").split()]
    expected = [
        signature(key, message_id=message_id, timestamp=timestamp, body=body).encode() for key in keys
    ]
    return any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in given)
