import os
import subprocess
import sys

import pytest
from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

from durable_retry.settings.group import SettingsError
from durable_retry.settings.storage_account import (
    ConnectionString,
    IdentityAccount,
    ManagedIdentity,
    StorageAccount,
    check_storage_account,
    credential_of,
    storage_account,
)

PREFIX = "AzureWebJobsStorage__"
ACCOUNT = {f"{PREFIX}accountName": "retries"}
MANAGED = {f"{PREFIX}credential": "managedidentity"}
URLS = {
    f"{PREFIX}blobServiceUri": "https://b.example",
    f"{PREFIX}queueServiceUri": "https://q.example",
    f"{PREFIX}tableServiceUri": "https://t.example",
}


def named(identity: ManagedIdentity | None) -> IdentityAccount:
    return IdentityAccount(
        "https://retries.table.core.windows.net", "https://retries.queue.core.windows.net", identity
    )


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"AzureWebJobsStorage": "UseDevelopmentStorage=true"},
            ConnectionString("UseDevelopmentStorage=true"),
        ),
        ({"AzureWebJobsStorage": "X=1", **ACCOUNT, **MANAGED}, ConnectionString("X=1")),
        ({"AzureWebJobsStorage": "", **ACCOUNT}, named(None)),
        (ACCOUNT | MANAGED, named(ManagedIdentity())),
        (ACCOUNT | {f"{PREFIX}credential": "ManagedIdentity"}, named(ManagedIdentity())),
        (ACCOUNT | MANAGED | {f"{PREFIX}clientId": "c"}, named(ManagedIdentity(client_id="c"))),
        (
            ACCOUNT | MANAGED | {f"{PREFIX}managedIdentityResourceId": "/r"},
            named(ManagedIdentity(resource_id="/r")),
        ),
        ({name.upper(): value for name, value in (ACCOUNT | MANAGED).items()}, named(ManagedIdentity())),
        (
            ACCOUNT | {f"{PREFIX}tableServiceUri": "HTTPS://t.example"},
            IdentityAccount("HTTPS://t.example", "https://retries.queue.core.windows.net", None),
        ),
        (URLS, IdentityAccount("https://t.example", "https://q.example", None)),
        (
            ACCOUNT | {f"{PREFIX}tableServiceUri": "https://t.example"},
            IdentityAccount("https://t.example", "https://retries.queue.core.windows.net", None),
        ),
    ],
)
def test_the_account_is_named_as_for_the_host(environ: dict[str, str], expected: StorageAccount) -> None:
    assert storage_account(environ) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {"AzureWebJobsStorage": "is missing: a connection string, or "}),
        (MANAGED, {f"{PREFIX}accountName": "is missing"}),
        (ACCOUNT | {f"{PREFIX}clientId": "c"}, {f"{PREFIX}credential": "is missing: managedidentity"}),
        (
            ACCOUNT | {f"{PREFIX}credential": "key"},
            {f"{PREFIX}credential": "must be managedidentity, not 'key'"},
        ),
        (
            {f"{PREFIX}queueServiceUri": "https://q.example"},
            {f"{PREFIX}blobServiceUri": "is missing", f"{PREFIX}tableServiceUri": "is missing"},
        ),
        (
            URLS | {f"{PREFIX}tableServiceUri": "http://t.example"},
            {f"{PREFIX}tableServiceUri": "must begin with https://"},
        ),
        (
            ACCOUNT | MANAGED | {f"{PREFIX}clientId": "c", f"{PREFIX}managedIdentityResourceId": "/r"},
            {f"{PREFIX}managedIdentityResourceId": "cannot stand beside"},
        ),
        (
            ACCOUNT | {f"{PREFIX}clientSecret": "s3cret"},
            {f"{PREFIX}clientSecret": "is not supported"},
        ),
        (
            {f"{PREFIX}credential": "key", f"{PREFIX}clientId": "c"},
            {f"{PREFIX}accountName": "is missing", f"{PREFIX}credential": "must be managedidentity"},
        ),
    ],
)
def test_every_missing_half_is_named(environ: dict[str, str], expected: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as caught:
        storage_account(environ)
    found = {problem.pointer: problem.detail for problem in caught.value.problems}
    assert found.keys() == expected.keys()
    assert all(found[name].startswith(detail) for name, detail in expected.items())
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("s3cret", "is not a connection string: write "),
        ("AccountKey=s3cret", "is not a connection string: write "),
        ("AccountName=store", "has no AccountKey: add it, or set AzureWebJobsStorage__accountName"),
        ("AccountName=store;AccountKey=s3cret", "has an AccountKey that is not Base64: copy "),
        (
            "@Microsoft.KeyVault(SecretUri=https://s3cret)",
            "is a Key Vault reference that the platform has not",
        ),
    ],
)
def test_what_is_no_connection_string_is_refused_without_being_shown(text: str, detail: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_storage_account({"AzureWebJobsStorage": text})
    (problem,) = caught.value.problems
    assert problem.pointer == "AzureWebJobsStorage"
    assert problem.detail.startswith(detail)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "UseDevelopmentStorage=true",
        "DefaultEndpointsProtocol=https;AccountName=store;AccountKey=czNjcmV0;EndpointSuffix=core.windows.net",
        "AccountName=store;TableEndpoint=http://127.0.0.1:10002/store;AccountKey=czNjcmV0;",
        "TableEndpoint=https://store.table.core.windows.net;SharedAccessSignature=sv=2024&sig=x%3D",
    ],
)
def test_every_form_of_a_connection_string_is_taken(text: str) -> None:
    check_storage_account({"AzureWebJobsStorage": text})


def test_loading_refuses_half_an_account_and_minds_no_missing_one() -> None:
    check_storage_account({})
    check_storage_account(ACCOUNT)
    with pytest.raises(SettingsError, match="accountName"):
        check_storage_account(MANAGED)


@pytest.mark.parametrize(
    ("identity", "kind"),
    [
        (None, DefaultAzureCredential),
        (ManagedIdentity(), ManagedIdentityCredential),
        (ManagedIdentity(client_id="c"), ManagedIdentityCredential),
        (ManagedIdentity(resource_id="/r"), ManagedIdentityCredential),
    ],
)
def test_an_identity_has_one_credential(identity: ManagedIdentity | None, kind: type) -> None:
    credential = credential_of(identity)
    assert isinstance(credential, kind)
    assert credential_of(identity) is credential


def test_a_connection_string_pays_for_no_identity() -> None:
    program = (
        "import sys\n"
        "from durable_retry.storage import clients, queues\n"
        "clients.table_service(), queues._queue_service()\n"
        "sys.exit('azure.identity' in sys.modules)\n"
    )
    environ = os.environ | {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env=environ)
