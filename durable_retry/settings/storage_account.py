"""The app's storage account, from the same app settings that the Functions host uses.

A connection string in `AzureWebJobsStorage` wins. Without one, settings that begin with
`AzureWebJobsStorage__` name the account and the identity that reaches it
(https://learn.microsoft.com/azure/azure-functions/functions-reference, "Connections").
"""

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, assert_never

from durable_retry.engine.base.validation import UNRESOLVED, UNRESOLVED_DETAIL, Problem
from durable_retry.settings.catalogue import (
    STORAGE,
    STORAGE_ACCOUNT,
    STORAGE_BLOBS,
    STORAGE_CLIENT_ID,
    STORAGE_CREDENTIAL,
    STORAGE_QUEUES,
    STORAGE_RESOURCE_ID,
    STORAGE_TABLES,
)
from durable_retry.settings.setting import SettingsError

if TYPE_CHECKING:
    # azure.identity takes a third of a second to import, which a connection string need not pay.
    from azure.core.credentials import TokenCredential

MANAGED_IDENTITY: Final = STORAGE_CREDENTIAL.choices[0]

_URLS: Final = (STORAGE_BLOBS, STORAGE_QUEUES, STORAGE_TABLES)
_USER_ASSIGNED: Final = (STORAGE_CLIENT_ID, STORAGE_RESOURCE_ID)
_REFUSED: Final = (f"{STORAGE.name}__clientSecret", f"{STORAGE.name}__clientCertificate")
"""Identities that the host supports and the app does not: they need a secret or a certificate store."""

_DOCUMENTED: Final = {
    name.lower(): name
    for name in (
        *(text.name for text in (STORAGE_ACCOUNT, *_URLS, STORAGE_CREDENTIAL, *_USER_ASSIGNED)),
        *_REFUSED,
    )
}


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """An account with its key in `text`, or the emulator."""

    text: str


@dataclass(frozen=True, slots=True)
class ManagedIdentity:
    """An identity of the function app: the system-assigned one, or that of an id.

    Attributes:
        client_id: Of a user-assigned identity; "" when it is not named so.
        resource_id: The same by resource id; at most one of the two is set.
    """

    client_id: str = ""
    resource_id: str = ""


@dataclass(frozen=True, slots=True)
class SurroundingIdentity:
    """DefaultAzureCredential: in Azure a managed identity, elsewhere the signed-in developer."""


type Identity = ManagedIdentity | SurroundingIdentity


@dataclass(frozen=True, slots=True)
class IdentityAccount:
    """An account accessed with an identity.

    Attributes:
        tables_url: https URL of its tables.
        queues_url: https URL of its queues.
        identity: The identity to use.
    """

    tables_url: str
    queues_url: str
    identity: Identity


type StorageAccount = ConnectionString | IdentityAccount


def storage_account(environ: Mapping[str, str] | None = None) -> StorageAccount:
    """Return the app's storage account.

    Args:
        environ: None means the process's own.

    Raises:
        SettingsError: No account is configured, or only half; lists each missing setting.
    """
    values = os.environ if environ is None else environ
    if text := STORAGE.get(values):
        return ConnectionString(text)
    settings = _identity_settings(values)
    if not settings:
        detail = f"is missing: a connection string, or {STORAGE_ACCOUNT.name} to use an identity"
        raise SettingsError((Problem(STORAGE.name, detail),))
    problems = (*_url_problems(settings), *_identity_problems(settings))
    if problems:
        raise SettingsError(problems)
    account = STORAGE_ACCOUNT.get(settings)
    return IdentityAccount(
        tables_url=STORAGE_TABLES.get(settings) or f"https://{account}.table.core.windows.net",
        queues_url=STORAGE_QUEUES.get(settings) or f"https://{account}.queue.core.windows.net",
        identity=_identity(settings),
    )


def check_storage_account(environ: Mapping[str, str] | None = None) -> None:
    """Refuse a half-configured account and a broken connection string; a missing one fails when first used.

    Args:
        environ: None means the process's own.

    Raises:
        SettingsError: See `storage_account`; or the connection string is none.
    """
    values = os.environ if environ is None else environ
    if text := STORAGE.get(values):
        if wrong := _mistake_in(text):
            raise SettingsError((Problem(STORAGE.name, wrong),))
    elif _identity_settings(values):
        storage_account(values)


@cache
def credential_of(identity: Identity) -> "TokenCredential":
    """Return the credential of an identity; it caches its token."""
    from azure.identity import (  # noqa: PLC0415 - a third of a second, not needed with a connection string
        DefaultAzureCredential,
        ManagedIdentityCredential,
    )

    match identity:
        case SurroundingIdentity():
            return DefaultAzureCredential()
        case ManagedIdentity(client_id="", resource_id=""):
            return ManagedIdentityCredential()
        case ManagedIdentity(client_id="", resource_id=resource_id):
            return ManagedIdentityCredential(identity_config={"resource_id": resource_id})
        case ManagedIdentity(client_id=client_id):
            return ManagedIdentityCredential(client_id=client_id)
        case _ as never:
            assert_never(never)


def _mistake_in(connection_string: str) -> str | None:
    """Say what is wrong with a connection string, without any of it: it holds a key."""
    if connection_string.startswith(UNRESOLVED):
        return UNRESOLVED_DETAIL
    fields = (part.partition("=") for part in connection_string.split(";") if part)
    values = {name.strip().lower(): value for name, _, value in fields}
    if values.get("usedevelopmentstorage", "").lower() == "true":
        return None
    if not {"accountname", "tableendpoint"} & values.keys():
        return (
            "is not a connection string: write DefaultEndpointsProtocol=https;AccountName=...;AccountKey=... "
            f"as the portal shows it, or UseDevelopmentStorage=true, or set {STORAGE_ACCOUNT.name} instead"
        )
    if not {"accountkey", "sharedaccesssignature"} & values.keys():
        return f"has no AccountKey: add it, or set {STORAGE_ACCOUNT.name} instead to use an identity"
    try:
        base64.b64decode(values.get("accountkey", ""), validate=True)
    except ValueError:
        return "has an AccountKey that is not Base64: copy the whole connection string from the portal"
    return None


def _identity_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the identity settings that are set, under their documented names.

    Like the host this ignores case, and settings that are unknown.
    """
    known = ((_DOCUMENTED.get(name.lower()), value) for name, value in environ.items())
    return {name: value for name, value in known if name and value}


def _url_problems(settings: Mapping[str, str]) -> Iterator[Problem]:
    given = [text for text in _URLS if text.get(settings)]
    if not given and not STORAGE_ACCOUNT.get(settings):
        yield Problem(STORAGE_ACCOUNT.name, "is missing: the name of the storage account")
    for url in given:
        if not url.get(settings).startswith("https://"):
            yield Problem(url.name, f"must begin with https://, not {url.get(settings)!r}")
    if given and not STORAGE_ACCOUNT.get(settings):
        for url in _URLS:
            if url not in given:
                yield Problem(url.name, f"is missing beside {given[0].name}")


def _identity_problems(settings: Mapping[str, str]) -> Iterator[Problem]:
    credential = STORAGE_CREDENTIAL.get(settings)
    if credential and credential.lower() != MANAGED_IDENTITY:
        yield Problem(STORAGE_CREDENTIAL.name, f"must be {MANAGED_IDENTITY}, not {credential!r}")
    named = [text for text in _USER_ASSIGNED if text.get(settings)]
    if named and not credential:
        yield Problem(
            STORAGE_CREDENTIAL.name, f"is missing: {MANAGED_IDENTITY}, since {named[0].name} is set"
        )
    if len(named) == len(_USER_ASSIGNED):
        yield Problem(STORAGE_RESOURCE_ID.name, f"cannot stand beside {STORAGE_CLIENT_ID.name}")
    for name in _REFUSED:
        if name in settings:
            yield Problem(name, "is not supported: use a managed identity or a connection string")


def _identity(settings: Mapping[str, str]) -> Identity:
    if not STORAGE_CREDENTIAL.get(settings):
        return SurroundingIdentity()
    return ManagedIdentity(STORAGE_CLIENT_ID.get(settings), STORAGE_RESOURCE_ID.get(settings))
