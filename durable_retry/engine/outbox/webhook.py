"""Standard Webhooks 1.0 (standardwebhooks.com): headers and signatures of a webhook.

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

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

_VERSION: Final = "v1"


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
    # Of this attempt and not of the event: receivers refuse old timestamps, and a retry may come days later.
    timestamp = int(now.timestamp())
    headers = {ID_HEADER: message_id, TIMESTAMP_HEADER: str(timestamp)}
    signatures = [signature(key, message_id=message_id, timestamp=timestamp, body=body) for key in keys]
    if signatures:
        headers[SIGNATURE_HEADER] = " ".join(signatures)
    return headers
