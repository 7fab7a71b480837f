import pytest

from durable_retry.storage import clients as storage_clients
from durable_retry.storage import tables
from tests.support.azurite import Storage, use_account


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
