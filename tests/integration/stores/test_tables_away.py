import asyncio

import pytest
from azure.core.exceptions import ServiceResponseError

from durable_retry.storage import clients as storage_clients
from durable_retry.storage import queues, tables
from tests.support.azurite import Storage, use_account
from tests.support.silent_server import silent_server


def row(key: str) -> dict[str, str]:
    return {"PartitionKey": "p", "RowKey": key}


async def test_storage_that_is_away_raises(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = storage.connection_string.replace(
        "TableEndpoint=http://127.0.0.1:", "TableEndpoint=http://127.0.0.1:1/"
    )
    use_account(monkeypatch, gone)
    monkeypatch.setattr(storage_clients, "CLIENT_OPTIONS", {"retry_total": 0, "connection_timeout": 1})
    with pytest.raises(Exception, match=r"(?i)connection|refused|invalid"):
        await tables.insert_if_absent("Away", row("a"))


async def test_storage_that_takes_a_request_and_never_answers_raises_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = {"connection_timeout": 0.3, "read_timeout": 0.3}
    monkeypatch.setattr(storage_clients, "REQUEST_SECONDS", short)
    monkeypatch.setattr(storage_clients, "CLIENT_OPTIONS", {"retry_total": 1, **short})
    monkeypatch.setattr(queues, "_CLIENT_OPTIONS", {"retry_total": 0, **short})
    async with silent_server() as port:
        place = f"http://127.0.0.1:{port}/devstoreaccount1"
        account = f"AccountName=devstoreaccount1;AccountKey=a2V5;TableEndpoint={place};QueueEndpoint={place}"
        use_account(monkeypatch, account)
        for call in (tables.read("Away", "p", "a"), queues.exists("away")):
            async with asyncio.timeout(10):
                with pytest.raises(ServiceResponseError, match="Read timed out"):
                    await call
