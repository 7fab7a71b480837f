from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from pydantic import TypeAdapter

from durable_retry.base.text import Secret
from durable_retry.features.credentials import tables
from durable_retry.features.credentials.tables import CredentialKeys
from durable_retry.rules.config.dependencies_file import ConfigError, key_path, parse_config
from durable_retry.rules.config.dependency import Auth, Dependency
from durable_retry.settings import configuration
from durable_retry.settings.mistakes import Mistakes
from tests.support.certificates import SelfSigned, make_self_signed
from tests.support.narrowing import existing

OAUTH = 'token_url = "https://id.example.com/token", client_id = "app", client_secret = "${SECRET}"'
SETTINGS = {"SECRET": "sesame-open", "TOKEN": "Bearer sesame", "EMPTY": ""}


def read(keys: str, defaults: str = "") -> Dependency:
    text = f'[defaults]\n{defaults}\n[dependencies.payments]\nbase_url = "https://a.example"\n{keys}'
    return parse_config(text, SETTINGS).dependencies["payments"]


def problems_of(keys: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        read(keys)
    paths = {key_path(problem.pointer): problem.detail for problem in refused.value.problems}
    return {path.removeprefix("dependencies.payments."): detail for path, detail in paths.items()}


def keys_of(dependency: Dependency) -> CredentialKeys:
    return dependency.keys_of("credentials", CredentialKeys)


def test_a_dependency_without_a_credential_has_nothing_of_it() -> None:
    assert (read("").auth, read("").of_features) == (None, {})


def test_an_identity_is_asked_for_a_token_and_the_header_is_reserved() -> None:
    dependency = read('auth = { identity = "api://payments/.default", client_id = "user-assigned" }')
    assert dependency.auth == Auth("Authorization", None)
    assert "authorization" in dependency.reserved_headers
    auth = existing(keys_of(dependency).auth)
    assert (auth.identity, auth.client_id) == ("api://payments/.default", "user-assigned")


def test_the_client_of_oauth_is_shown_without_its_secret() -> None:
    dependency = read(f'auth = {{ header = "X-Token", oauth = {{ {OAUTH}, scope = "charge" }} }}')
    assert existing(existing(keys_of(dependency).auth).oauth).client_secret == Secret("sesame-open")
    shown = TypeAdapter(Dependency).dump_python(dependency, mode="json")["auth"]
    assert (shown["header"], shown["oauth"]["scope"]) == ("X-Token", "charge")
    assert shown["oauth"]["client_secret"] == "***"
    assert "sesame" not in f"{dependency!r}{shown}"


def test_a_fixed_header_stays_one() -> None:
    dependency = read('auth = { value = "${TOKEN}" }')
    assert dependency.auth == Auth("Authorization", Secret("Bearer sesame"))
    assert TypeAdapter(Dependency).dump_python(dependency, mode="json")["auth"]["value"] == "***"
    assert "sesame" not in f"{dependency!r}"


def test_a_credential_of_its_own_takes_only_the_header_from_the_defaults() -> None:
    defaults = 'auth = { header = "X-Token", value = "${TOKEN}" }'
    assert read("", defaults).auth == Auth("X-Token", Secret("Bearer sesame"))
    assert read('auth = { header = "X-Own" }', defaults).auth == Auth("X-Own", Secret("Bearer sesame"))
    dependency = read('auth = { identity = "api://payments/.default" }', defaults)
    assert dependency.auth == Auth("X-Token", None)


@pytest.mark.parametrize(
    ("keys", "problems"),
    [
        (
            'auth = { value = "${TOKEN}", identity = "api://a/.default" }',
            {"auth": "takes one of value, identity, oauth, not value and identity"},
        ),
        (
            'auth = { client_id = "app" }',
            {"auth": "has client_id without identity; that of oauth stands in its own table"},
        ),
        ('auth = { header = "X-Token" }', {"auth.value": "is required"}),
        ('auth = { value = "${EMPTY}" }', {"auth.value": "is required"}),
        ("auth = { value = 5 }", {"auth.value": "must be a string"}),
        ('auth = { identity = "" }', {"auth.identity": "is required"}),
        (
            'auth = { oauth = { token_url = "https://id.example.com", client_id = "", scopes = "a" } }',
            {
                "auth.oauth.client_id": "is required",
                "auth.oauth.client_secret": "is required",
                "auth.oauth.scopes": 'is not a known key; did you mean "scope"?',
            },
        ),
        (
            f"auth = {{ oauth = {{ {OAUTH.replace('SECRET', 'EMPTY')} }} }}",
            {"auth.oauth.client_secret": "is required (the app setting EMPTY)"},
        ),
        (
            f"auth = {{ oauth = {{ {OAUTH.replace('https:', 'ftp:')} }} }}",
            {"auth.oauth.token_url": "must begin with http:// or https://, not 'ftp://id.example.com/token'"},
        ),
        ('tls = { certificate = "" }', {"tls.certificate": "is required"}),
    ],
)
def test_mistakes_are_told_with_their_place(keys: str, problems: dict[str, str]) -> None:
    assert problems_of(keys) == problems


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SelfSigned:
    return make_self_signed(tmp_path_factory.mktemp("certificate"))


def problems_of_pair(certificate: Path, key: Path | str = "") -> list[str]:
    dependency = read(f'tls = {{ certificate = "{certificate}", key = "{key}" }}')
    problems = list(tables.problems_of_certificate(dependency))
    assert {problem.pointer for problem in problems} <= {"/tls"}
    return [problem.detail for problem in problems]


def test_a_certificate_may_have_its_key_in_the_same_file(files: SelfSigned, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(files.certificate.read_bytes() + files.key.read_bytes())
    assert list(tables.problems_of_certificate(read(""))) == []
    assert problems_of_pair(both) == problems_of_pair(both, files.key) == []


def test_files_that_are_missing_are_named(files: SelfSigned, tmp_path: Path) -> None:
    gone, away = tmp_path / "gone.pem", tmp_path / "away.pem"
    assert problems_of_pair(gone) == [f"names no file: {gone}"]
    assert problems_of_pair(files.certificate, gone) == [f"names no file: {gone}"]
    assert problems_of_pair(gone, away) == [f"names no file: {gone}", f"names no file: {away}"]


def test_a_key_that_cannot_be_used_is_a_mistake(files: SelfSigned, tmp_path: Path) -> None:
    locked, other = tmp_path / "locked.pem", make_self_signed(tmp_path).key
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"sesame"),
        )
    )
    for file in (locked, other, files.certificate):
        (problem,) = problems_of_pair(files.certificate, file)
        assert problem.startswith("cannot be used: ")


def test_the_start_names_the_line_of_a_file_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, mistakes = tmp_path / "dependencies.toml", Mistakes(tmp_path)
    file.write_text(
        '[dependencies.payments]\nbase_url = "https://a.example"\ntls = { certificate = "${PEM}" }\n'
    )
    monkeypatch.setenv("PEM", "/none.pem")
    configuration.read_dependencies(file, mistakes)
    (problem,) = mistakes.problems
    assert problem.detail == "names no file: /none.pem"
    assert problem.pointer == "dependencies.toml:3: dependencies.payments.tls"
    monkeypatch.setattr(configuration, "_settings_for", lambda _: {"PEM": "placeholder"})
    configuration.read_dependencies(file, placeholders := Mistakes(tmp_path))
    assert placeholders.problems == []
