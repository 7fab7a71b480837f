from typing import Any
from unittest.mock import patch

import pytest
from azure.core import MatchConditions
from azure.data.tables import TableClient, UpdateMode

from durable_retry.base.errors import StorageRefusedError
from durable_retry.storage import tables
from tests.support.narrowing import existing

pytestmark = pytest.mark.usefixtures("storage")


def row(key: str, **values: Any) -> dict[str, Any]:
    return {"PartitionKey": "it's p\u00e4", "RowKey": key, **values}


async def kept(key: str) -> dict[str, Any] | None:
    return await tables.read("Written", "it's p\u00e4", key)


async def test_changes_of_every_kind_are_made_without_the_sdks_own_way() -> None:
    odd = 'a "b"\r\n--changeset_\U0001f600\r\n\r\n' * 200
    await tables.transact("Written", [("create", row(key, x=1, y=1)) for key in ("old", "changed", "gone")])
    seen = existing(await tables.read_version("Written", "it's p\u00e4", "changed"))
    condition = {"etag": seen.etag, "match_condition": MatchConditions.IfNotModified}
    with patch.object(TableClient, "_batch_send", side_effect=AssertionError):
        assert await tables.transact(
            "Written",
            [
                ("create", row("n\u00e9w's", text=odd, truth=True, number=1.5)),
                ("upsert", row("old", x=2)),
                ("update", row("changed", x=3), {"mode": UpdateMode.REPLACE, **condition}),
                ("delete", row("gone")),
            ],
        )
    new, old, changed = [await kept(key) for key in ("n\u00e9w's", "old", "changed")]
    assert new is not None
    assert (new["text"], new["truth"], new["number"]) == (odd, True, 1.5)
    assert old is not None
    assert (old["x"], old["y"]) == (2, 1)
    assert changed is not None
    assert (changed["x"], "y" in changed) == (3, False)
    assert await kept("gone") is None


async def test_a_changed_row_refuses_the_whole_transaction() -> None:
    await tables.insert_if_absent("Written", row("version", x=1))
    seen = existing(await tables.read_version("Written", "it's p\u00e4", "version"))
    await tables.merge("Written", row("version", x=2))
    condition = {"etag": seen.etag, "match_condition": MatchConditions.IfNotModified}
    with pytest.raises(StorageRefusedError, match="UpdateConditionNotSatisfied"):
        await tables.transact(
            "Written", [("create", row("beside")), ("update", row("version", x=3), dict(condition))]
        )
    assert await kept("beside") is None
