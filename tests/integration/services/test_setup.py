"""`set_up` on an account of its own: what is missing is made once, and a refusal is named."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.storage.queue import (
    AccountSasPermissions,
    QueueServiceClient,
    ResourceTypes,
    Services,
    generate_account_sas,
)

from durable_retry.features.setup.storage import SetUp, SetUpState, set_up
from durable_retry.settings.configuration import Registration
from durable_retry.storage import queues, tables
from tests.support.azurite import Storage, new_account, use_account


@pytest.fixture
def empty() -> Storage:
    return new_account()


def states(answer: SetUp) -> set[SetUpState]:
    return {item.state for item in answer.items}


async def test_what_is_missing_is_made_once(empty: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    use_account(monkeypatch, empty.connection_string)
    await tables.merge("DeadLetters", {"PartitionKey": "p", "RowKey": "r"})
    first = await set_up()
    assert [item.name for item in first.items[:2]] == ["operations", "operations-poison"]
    assert [item.name for item in first.items if item.state is SetUpState.PRESENT] == ["DeadLetters"]
    assert await tables.read("DeadLetters", "p", "r") is not None
    assert await queues.exists("operations-poison")
    assert states(await set_up()) == {SetUpState.PRESENT}


# The client of tables reads the XML of a refusal in a way that Python will drop.
@pytest.mark.filterwarnings("ignore:Testing an element:DeprecationWarning")
async def test_what_the_app_may_not_make_is_refused_with_the_reason(
    empty: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with QueueServiceClient.from_connection_string(empty.connection_string) as service:
        service.create_queue("operations")
        signature = generate_account_sas(
            str(service.account_name),
            service.credential.account_key,
            ResourceTypes(service=True, container=True, object=True),
            AccountSasPermissions(read=True, list=True),
            datetime.now(UTC) + timedelta(hours=1),
            services=Services(queue=True),
        )
    endpoints = f"QueueEndpoint={empty.urls['queue']};TableEndpoint={empty.urls['table']}"
    use_account(monkeypatch, f"{endpoints};SharedAccessSignature={signature}")
    answer = await set_up()
    assert answer.items[0].state is SetUpState.PRESENT
    assert {item.state for item in answer.items[1:]} == {SetUpState.REFUSED}
    assert all("not authorized" in (item.detail or "") for item in answer.items[1:]), answer


async def test_an_app_that_takes_nothing_from_a_queue_gets_none(
    empty: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "durable_retry.features.setup.storage.registration", lambda: Registration(sources=frozenset())
    )
    use_account(monkeypatch, empty.connection_string)
    assert {item.kind for item in (await set_up()).items} == {"table"}
