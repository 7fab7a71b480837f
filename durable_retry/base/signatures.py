"""Signatures by Standard Webhooks 1.0 (standardwebhooks.com).

The signed text is `id.timestamp.body`. A signature is `v1,` and the base64 of the HMAC-SHA256 of that text.
With several secrets there are several signatures, separated by spaces: a secret can be replaced while
receivers still have the old one only.
"""

import base64
import hmac
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Final

from durable_retry.base.text import Secret

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - a prefix that the standard gives, not a secret
SHORTEST_KEY_BYTES: Final = 24
LONGEST_KEY_BYTES: Final = 64


class WebhookSecretError(ValueError):
    """A secret that cannot sign; the message never shows it."""


def signing_key(secret: Secret) -> bytes:
    """Return the key inside a secret: base64 of 24 to 64 bytes, with or without the prefix `whsec_`.

    Raises:
        WebhookSecretError: It is not base64, or too short or too long.
    """
    text = secret.reveal().removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        # `from None`: the cause would show part of the secret.
        raise WebhookSecretError("is not base64, with or without whsec_ before it") from None
    if not SHORTEST_KEY_BYTES <= len(key) <= LONGEST_KEY_BYTES:
        raise WebhookSecretError(
            f"holds {len(key)} bytes; the standard asks for {SHORTEST_KEY_BYTES} to {LONGEST_KEY_BYTES}"
        )
    return key


ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

_VERSION: Final = "v1"


def signature(key: bytes, *, message_id: str, timestamp: int, body: str) -> str:
    """Return one signature, `v1,...`, of exactly what is sent.

    `timestamp` is whole seconds since 1970, of this attempt.
    """
    signed = f"{message_id}.{timestamp}.{body}".encode()
    digest = hmac.new(key, signed, sha256).digest()
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def signed_headers(message_id: str, body: str, keys: Iterable[bytes], now: datetime) -> dict[str, str]:
    """Return the headers of one attempt.

    All keys sign, the newest first; without one there is no signature.
    """
    # The time of this attempt, not of the event: receivers refuse old ones, and a retry may come days later.
    timestamp = int(now.timestamp())
    headers = {ID_HEADER: message_id, TIMESTAMP_HEADER: str(timestamp)}
    signatures = [signature(key, message_id=message_id, timestamp=timestamp, body=body) for key in keys]
    if signatures:
        headers[SIGNATURE_HEADER] = " ".join(signatures)
    return headers
