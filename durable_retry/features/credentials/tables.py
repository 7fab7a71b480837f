"""What dependencies.toml says of tokens and client certificates."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import model_validator

from durable_retry.base.validation import Problem, Strict, checked, refuse
from durable_retry.rules.config.dependency import AuthTable, BaseUrl, Dependency, SecretText, secret_text
from durable_retry.settings.configuration import APP_ROOT
from durable_retry.settings.pem_files import problems_of_pem


def _missing(text: str) -> str | None:
    return None if text else "is required"


_Text = Annotated[str, checked(_missing)]


class OAuthTable(Strict):
    """Client credentials of OAuth 2.0 (RFC 6749, section 4.4).

    Attributes:
        token_url: Takes the POST that returns a token.
        client_id: Names the app there.
        client_secret: Usually `${NAME}`; never stored, logged or shown.
        scope: What the token is for; "" asks for what the service gives by itself.
    """

    token_url: BaseUrl
    client_id: _Text
    client_secret: Annotated[SecretText, secret_text(_missing)]
    scope: str = ""


_KINDS: Final = ("value", "identity", "oauth")


class SignInTable(AuthTable):
    """`auth`: what authenticates the app, one of `value`, `identity` and `oauth`.

    Attributes:
        header: The header that has it.
        value: What the header holds, usually `${NAME}`; never stored, logged or shown.
        identity: Scope of a token of the app's managed identity, such as `api://payments/.default`; on one
            machine the token is that of who is signed in there.
        client_id: Names a user-assigned identity; "" is the system-assigned one.
        oauth: Client credentials of OAuth: `token_url`, `client_id`, `client_secret`, and `scope` where the
            service asks for one.
    """

    identity: _Text | None = None
    client_id: str = ""
    oauth: OAuthTable | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        kinds = [kind for kind in _KINDS if kind in self.model_fields_set]
        if len(kinds) > 1:
            raise refuse(f"takes one of {', '.join(_KINDS)}, not {' and '.join(kinds)}")
        if self.client_id and self.identity is None:
            raise refuse("has client_id without identity; that of oauth stands in its own table")
        return self


class CertificateTable(Strict):
    """`tls`: the certificate that the app shows to the dependency.

    Attributes:
        certificate: PEM file of the certificate and of its issuers, relative to the app's folder.
        key: PEM file of its key, which has no passphrase; "" where `certificate` holds the key, too.
    """

    certificate: _Text
    key: str = ""

    @property
    def files(self) -> tuple[Path, Path]:
        """The two files; they may be the same."""
        return APP_ROOT / self.certificate, APP_ROOT / (self.key or self.certificate)

    def add_to(self, context: ssl.SSLContext) -> None:
        """Let connections of a context show the certificate; OSError where its files cannot be used."""
        # With a passphrase of no characters: without one OpenSSL asks whoever started the app.
        context.load_cert_chain(*self.files, password="")


class CredentialKeys(Strict):
    """What the feature adds to a dependency.

    Attributes:
        auth: What authenticates the app.
        tls: The certificate that the app shows.
    """

    auth: SignInTable | None = None
    tls: CertificateTable | None = None


def keys_of(dependency: Dependency) -> CredentialKeys:
    """Return what a dependency has of the feature."""
    return dependency.keys_of("credentials", CredentialKeys)


def problems_of_certificate(dependency: Dependency) -> Iterator[Problem]:
    """List what is wrong with the files of a dependency's certificate."""
    if (tls := keys_of(dependency).tls) is not None:
        yield from problems_of_pem("/tls", tls.files, tls.add_to)
