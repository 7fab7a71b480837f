"""Secrets of Standard Webhooks 1.0 (standardwebhooks.com): the key inside one."""

import base64
from typing import Final

from durable_retry.engine.base.secret import Secret

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - a prefix that the standard gives, not a secret
SHORTEST_KEY_BYTES: Final = 24
LONGEST_KEY_BYTES: Final = 64


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
        # `from None`: the cause would show part of the secret.
        raise WebhookSecretError("is not base64, with or without whsec_ before it") from None
    if not SHORTEST_KEY_BYTES <= len(key) <= LONGEST_KEY_BYTES:
        raise WebhookSecretError(
            f"holds {len(key)} bytes; the standard asks for {SHORTEST_KEY_BYTES} to {LONGEST_KEY_BYTES}"
        )
    return key
