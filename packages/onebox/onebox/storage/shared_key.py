"""The signature that a storage account's key puts on a request.

Source: "Authorize with Shared Key", Azure Storage REST reference.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedKey:
    """An account's name and its key, decoded."""

    account: str
    key: bytes

    def authorization(
        self, method: str, path: str, query: Sequence[str], headers: Mapping[str, str], *, length: int = 0
    ) -> str:
        """Return the Authorization header of a request.

        Args:
            method: The HTTP method.
            path: The path of the URL, percent-encoded.
            query: The URL's parameters as `name:value`, decoded and sorted.
            headers: Its `x-ms-` headers, names in lower case. Of the other headers that the service signs,
                the request may have Content-Length alone.
            length: The length of the body, in bytes.
        """
        # A line per standard header; the service takes an empty line for a length of 0.
        standard = [method, "", "", str(length or ""), *[""] * 8]
        named = [f"{name}:{headers[name]}" for name in sorted(headers)]
        text = "\n".join([*standard, *named, f"/{self.account}{path}", *query])
        digest = hmac.digest(self.key, text.encode(), hashlib.sha256)
        return f"SharedKey {self.account}:{base64.b64encode(digest).decode()}"
