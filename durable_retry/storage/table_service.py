"""The SDK's client of an account's tables; it is imported when a table is first used.

A table's transaction is sent as one text that is written here. The SDK writes it with Python's `email`, each
part on a thread that it starts for it, and reads the answer in the same way: 11 ms of processor time for
twelve rows. Here it takes 2.5. Rows and conditions are the SDK's own requests, and so are all errors: what
was refused as a whole is sent once more by the SDK, which then says why.
"""

import re
import uuid
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, override

from azure.core.pipeline.transport import RequestsTransport
from azure.core.rest import HttpRequest
from azure.data.tables import TableClient, TableServiceClient
from requests import Session
from requests.adapters import HTTPAdapter
from urllib3.util import Retry


def pooled_transport(connections: int, **seconds: float) -> RequestsTransport:
    """Return the client library's own transport, which keeps so many connections in place of ten.

    Args:
        seconds: `connection_timeout` and `read_timeout`. A client gives its own only to a transport that it
            makes itself: any other one has 300 s for each.
    """
    session = Session()
    adapter = HTTPAdapter(
        pool_maxsize=connections, max_retries=Retry(total=False, redirect=False, raise_on_status=False)
    )
    for scheme in ("https://", "http://"):
        session.mount(scheme, adapter)
    return RequestsTransport(session=session, session_owner=False, **seconds)


_PART: Final = re.compile(rb"^HTTP/1\.1 (?=\d\d\d )", re.MULTILINE)
"""Begins the answer to each change."""

_DONE: Final = b"2"

_SDK_PRIVATE: Final = ("_batch_send", "_client", "_primary_hostname")
"""Private attributes of the SDK that `_send_transaction` uses; without one, the SDK sends by itself."""


class TableService(TableServiceClient):
    """The SDK's client of an account, with a client for each table that is made once."""

    def __init__(self, endpoint: str, **options: Any) -> None:
        super().__init__(endpoint, **options)
        self._tables: dict[str, TableClient] = {}

    @override
    def get_table_client(self, table_name: str, **kwargs: Any) -> TableClient:
        client = self._tables.get(table_name)
        if client is None:
            client = super().get_table_client(table_name, **kwargs)
            if all(hasattr(client, name) for name in _SDK_PRIVATE):
                vars(client)["_batch_send"] = partial(_send_transaction, client)
            self._tables[table_name] = client
        return client


def _send_transaction(
    client: TableClient, table: str, *rows: HttpRequest, **options: Any
) -> list[Mapping[str, Any]]:
    """Send a transaction in place of the SDK's `_batch_send`, without the versions that it returns."""
    boundary = f"batch_{uuid.uuid4()}"
    request = HttpRequest(
        "POST",
        f"{client.scheme}://{client._primary_hostname}/$batch",  # noqa: SLF001 - as in the SDK
        headers={
            "x-ms-version": client.api_version,
            "DataServiceVersion": "3.0",
            "MaxDataServiceVersion": "3.0;NetFx",
            "Content-Type": f"multipart/mixed; boundary={boundary}",
            "Accept": "application/json",
        },
        content=_transaction_body(boundary, rows),
    )
    response = client._client.send_request(request, stream=True, **options)  # noqa: SLF001 - as above
    if response.status_code == HTTPStatus.ACCEPTED:
        answers = _PART.split(response.read())[1:]
        if len(answers) == len(rows) and all(answer.startswith(_DONE) for answer in answers):
            return [{} for _ in answers]
    return TableClient._batch_send(client, table, *rows, **options)  # noqa: SLF001 - as above


def _transaction_body(boundary: str, rows: tuple[HttpRequest, ...]) -> bytes:
    """Write the rows' requests as one change set (RFC 2046, "Performing entity group transactions")."""
    changes = f"changeset_{uuid.uuid4()}"
    lines = [f"--{boundary}", f"Content-Type: multipart/mixed; boundary={changes}", ""]
    for number, row in enumerate(rows):
        content = row.content or ""
        lines += [
            f"--{changes}",
            "Content-Type: application/http",
            "Content-Transfer-Encoding: binary",
            f"Content-ID: {number}",
            "",
            f"{row.method} {row.url} HTTP/1.1",
            *(f"{name}: {value}" for name, value in row.headers.items()),
            "",
            content if isinstance(content, str) else content.decode(),
        ]
    return "\r\n".join([*lines, f"--{changes}--", f"--{boundary}--", ""]).encode()
