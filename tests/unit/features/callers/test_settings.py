from hashlib import sha256

import pytest

from durable_retry.base.names import Role
from durable_retry.features.callers.reading import caller_reader
from durable_retry.features.callers.settings import CallerKey, CallerSettings
from durable_retry.settings.group import SettingsError

HASH = sha256(b"a key").hexdigest()
AUTH = {"WEBSITE_AUTH_ENABLED": "True"}


def test_without_settings_nobody_is_known() -> None:
    assert CallerSettings.read({}) == CallerSettings()
    caller_reader.cache_clear()
    assert caller_reader() is None


def test_every_setting_counts() -> None:
    settings = CallerSettings.read(
        AUTH
        | {
            "OPERATOR_ROLES": "ops, groups=42",
            "READER_ROLES": "support",
            "CALLER_KEYS": f"pager=reader:{HASH}",
        }
    )
    assert settings == CallerSettings(
        website_auth_enabled="True",
        operator_roles=frozenset({"ops", "groups=42"}),
        reader_roles=frozenset({"support"}),
        caller_keys={HASH: CallerKey("pager", Role.READER)},
    )


@pytest.mark.parametrize(
    ("operators", "readers", "claims", "role"),
    [
        ("", "", set(), Role.OPERATOR),
        ("ops", "", {"ops"}, Role.OPERATOR),
        ("ops", "", {"support"}, Role.READER),
        ("ops", "support", {"support"}, Role.READER),
        ("ops", "support", {"ops", "support"}, Role.OPERATOR),
        ("ops", "support", set(), Role.NONE),
    ],
)
def test_the_role_of_a_person(operators: str, readers: str, claims: set[str], role: Role) -> None:
    settings = CallerSettings.read(AUTH | {"OPERATOR_ROLES": operators, "READER_ROLES": readers})
    assert settings.role_of(frozenset(claims)) is role


@pytest.mark.parametrize(
    ("environ", "name", "what"),
    [
        ({"OPERATOR_ROLES": "ops"}, "OPERATOR_ROLES", "App Service authentication only"),
        (AUTH | {"READER_ROLES": "support"}, "OPERATOR_ROLES", "nobody could change anything"),
        (AUTH | {"OPERATOR_ROLES": ","}, "OPERATOR_ROLES", "names nobody"),
        (AUTH | {"OPERATOR_ROLES": "ops", "READER_ROLES": " , "}, "READER_ROLES", "names nobody"),
        ({"CALLER_KEYS": "  "}, "CALLER_KEYS", "names no key"),
        ({"CALLER_KEYS": "pager=reader:the-key-itself"}, "CALLER_KEYS", "entry 1 must be name=ROLE:SHA256"),
        ({"CALLER_KEYS": f"pager=owner:{HASH}"}, "CALLER_KEYS", "entry 1"),
        ({"CALLER_KEYS": f"a=reader:{HASH} b=operator:{HASH}"}, "CALLER_KEYS", "entry 2 has the key of a"),
    ],
)
def test_a_mistake_stops_the_start(environ: dict[str, str], name: str, what: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        CallerSettings.read(environ)
    (problem,) = refusal.value.problems
    assert problem.pointer == name
    assert what in problem.detail
    assert "the-key-itself" not in problem.detail


def test_each_kind_of_role_without_people_is_told() -> None:
    with pytest.raises(SettingsError) as refusal:
        CallerSettings.read({"OPERATOR_ROLES": "ops", "READER_ROLES": "support"})
    assert [problem.pointer for problem in refusal.value.problems] == ["OPERATOR_ROLES", "READER_ROLES"]
