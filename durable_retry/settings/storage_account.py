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
from typing import TYPE_CHECKING, Any, ClassVar, Final

from durable_retry.base.validation import UNRESOLVED, UNRESOLVED_DETAIL, Problem
from durable_retry.settings.group import SettingsError, SettingsGroup, setting

if TYPE_CHECKING:
    # azure.identity takes a third of a second to import, which a connection string need not pay.
    from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

MANAGED_IDENTITY: Final = "managedidentity"

STORAGE: Final = "AzureWebJobsStorage"
"""The app setting with the connection string; the others begin with it and `__`."""

_ACCOUNT: Final = f"{STORAGE}__accountName"
_CREDENTIAL: Final = f"{STORAGE}__credential"
_CLIENT_ID: Final = f"{STORAGE}__clientId"
_RESOURCE_ID: Final = f"{STORAGE}__managedIdentityResourceId"
_REFUSED: Final = (f"{STORAGE}__clientSecret", f"{STORAGE}__clientCertificate")
"""Identities that the host supports and the app does not: they need a secret or a certificate store."""


class StorageSettings(SettingsGroup):
    """The storage account of tables, queues and the task hub."""

    heading: ClassVar[str] = "Storage"

    connection_string: str = setting(
        "Storage account of tables, queues and the task hub. Locally `UseDevelopmentStorage=true`, the "
        "emulator.",
        name=STORAGE,
        secret=True,
    )
    account: str = setting(
        "Name of the storage account, reached by an identity. Used when `AzureWebJobsStorage` itself is not "
        "set.",
        name=_ACCOUNT,
    )
    blobs_url: str = setting(
        "URL of its blobs, https, in place of the account's name; the host's setting.",
        name=f"{STORAGE}__blobServiceUri",
    )
    queues_url: str = setting(
        "URL of its queues, https, in place of the account's name.", name=f"{STORAGE}__queueServiceUri"
    )
    tables_url: str = setting(
        "URL of its tables, https, in place of the account's name.", name=f"{STORAGE}__tableServiceUri"
    )
    credential: str = setting(
        "`managedidentity`: the app's managed identity. Not set: the identity of the environment, outside "
        "Azure the signed-in developer.",
        name=_CREDENTIAL,
        choices=(MANAGED_IDENTITY,),
    )
    client_id: str = setting(
        "Client id of a user-assigned identity. Not set: the system-assigned one.", name=_CLIENT_ID
    )
    resource_id: str = setting("The same by resource id, in place of the client id.", name=_RESOURCE_ID)

    @classmethod
    def texts_in(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """Find the settings in any case, as the host does."""
        return super().texts_in(_documented_settings(environ))

    @classmethod
    def mistakes_across(cls, environ: Mapping[str, str]) -> Iterator[Problem]:
        """Find what is missing for an identity, or not supported."""
        settings = _documented_settings(environ)
        if STORAGE not in settings and settings:
            yield from _url_problems(settings)
            yield from _identity_problems(settings)

    @property
    def identity(self) -> "ManagedIdentity | None":
        return ManagedIdentity(self.client_id, self.resource_id) if self.credential else None


def _documented_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are set, under their documented names; unknown ones are ignored."""
    names = (*(described.name for described in StorageSettings.described()), *_REFUSED)
    documented = {name.lower(): name for name in names}
    pairs = ((documented.get(name.lower()), value) for name, value in environ.items())
    return {name: value for name, value in pairs if name and value}


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """An account with its key in `text`, or the emulator."""

    text: str


@dataclass(frozen=True, slots=True)
class ManagedIdentity:
    """An identity of the function app: the system-assigned one, or that of an id."""

    client_id: str = ""  # the id of a user-assigned identity; "" when it is not named so
    resource_id: str = ""  # the same by resource id; at most one of the two is set


@dataclass(frozen=True, slots=True)
class IdentityAccount:
    """An account accessed with an identity."""

    tables_url: str  # https URL of its tables
    queues_url: str  # https URL of its queues
    # None is DefaultAzureCredential: in Azure a managed identity, elsewhere the signed-in developer.
    identity: ManagedIdentity | None


type StorageAccount = ConnectionString | IdentityAccount


def storage_account(environ: Mapping[str, str] | None = None) -> StorageAccount:
    """Return the app's storage account; SettingsError lists what is missing where none is configured."""
    values = os.environ if environ is None else environ
    if text := values.get(STORAGE):
        return ConnectionString(text)
    settings = StorageSettings.read(values)
    if not settings.model_fields_set:
        detail = f"is missing: a connection string, or {_ACCOUNT} to use an identity"
        raise SettingsError((Problem(STORAGE, detail),))
    return IdentityAccount(
        tables_url=settings.tables_url or f"https://{settings.account}.table.core.windows.net",
        queues_url=settings.queues_url or f"https://{settings.account}.queue.core.windows.net",
        identity=settings.identity,
    )


def check_storage_account(environ: Mapping[str, str] | None = None) -> None:
    """Refuse a half-configured account and a broken connection string; a missing one fails when used."""
    values = os.environ if environ is None else environ
    if text := values.get(STORAGE):
        if wrong := _mistake_in(text):
            raise SettingsError((Problem(STORAGE, wrong),))
    else:
        StorageSettings.read(values)


def make_credential(
    identity: ManagedIdentity | None,
) -> "ManagedIdentityCredential | DefaultAzureCredential":
    """Return a new credential of an identity, None as in `IdentityAccount`; it caches its tokens."""
    from azure.identity import DefaultAzureCredential, ManagedIdentityCredential  # noqa: PLC0415 - a third of a second, not needed with a connection string

    if identity is None:
        return DefaultAzureCredential()
    if identity.resource_id:
        return ManagedIdentityCredential(identity_config={"resource_id": identity.resource_id})
    return ManagedIdentityCredential(client_id=identity.client_id or None)


credential_of: Final = cache(make_credential)
"""Returns the credential of an identity, which the process makes once."""


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
            f"as the portal shows it, or UseDevelopmentStorage=true, or set {_ACCOUNT} instead"
        )
    if not {"accountkey", "sharedaccesssignature"} & values.keys():
        return f"has no AccountKey: add it, or set {_ACCOUNT} instead to use an identity"
    try:
        base64.b64decode(values.get("accountkey", ""), validate=True)
    except ValueError:
        return "has an AccountKey that is not Base64: copy the whole connection string from the portal"
    return None


def _url_problems(settings: Mapping[str, str]) -> Iterator[Problem]:
    urls = [StorageSettings.name_of(field) for field in ("blobs_url", "queues_url", "tables_url")]
    present = [name for name in urls if name in settings]
    if not present and _ACCOUNT not in settings:
        yield Problem(_ACCOUNT, "is missing: the name of the storage account")
    for name in present:
        if not settings[name].lower().startswith("https://"):
            yield Problem(name, f"must begin with https://, not {settings[name]!r}")
    if present and _ACCOUNT not in settings:
        missing = (name for name in urls if name not in present)
        yield from (Problem(name, f"is missing beside {present[0]}") for name in missing)


def _identity_problems(settings: Mapping[str, str]) -> Iterator[Problem]:
    named = [name for name in (_CLIENT_ID, _RESOURCE_ID) if name in settings]
    if named and _CREDENTIAL not in settings:
        yield Problem(_CREDENTIAL, f"is missing: {MANAGED_IDENTITY}, since {named[0]} is set")
    if len(named) > 1:
        yield Problem(_RESOURCE_ID, f"cannot stand beside {_CLIENT_ID}")
    for name in _REFUSED:
        if name in settings:
            yield Problem(name, "is not supported: use a managed identity or a connection string")
