from hashlib import sha256

import pytest

from durable_retry.settings.app import SettingsError
from durable_retry.settings.callers import CallerKey, CallerSettings, Role, read_caller_settings

HASH = sha256(b"a key").hexdigest()
AUTH = {"WEBSITE_AUTH_ENABLED": "True"}


def test_without_settings_nobody_is_known() -> None:
    assert read_caller_settings({}) == CallerSettings()
    assert not CallerSettings().knows_callers


def test_every_setting_counts() -> None:
    settings = read_caller_settings(
        AUTH
        | {
            "OPERATOR_ROLES": "ops, groups=42",
            "READER_ROLES": "support",
            "CALLER_KEYS": f"pager=reader:{HASH}",
        }
    )
    assert settings == CallerSettings(
        trusts_principals=True,
        operators=frozenset({"ops", "groups=42"}),
        readers=frozenset({"support"}),
        keys={HASH: CallerKey("pager", Role.READER)},
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
    settings = read_caller_settings(AUTH | {"OPERATOR_ROLES": operators, "READER_ROLES": readers})
    assert settings.role_of(frozenset(claims)) is role


@pytest.mark.parametrize(
    ("environ", "name", "what"),
    [
        ({"OPERATOR_ROLES": "ops"}, "OPERATOR_ROLES", "App Service authentication only"),
        (AUTH | {"READER_ROLES": "support"}, "OPERATOR_ROLES", "nobody could change anything"),
        ({"CALLER_KEYS": "pager=reader:the-key-itself"}, "CALLER_KEYS", "entry 1 must be name=reader:SHA256"),
        ({"CALLER_KEYS": f"pager=owner:{HASH}"}, "CALLER_KEYS", "entry 1"),
    ],
)
def test_a_mistake_stops_the_start(environ: dict[str, str], name: str, what: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        read_caller_settings(environ)
    (problem,) = refusal.value.problems
    assert problem.pointer == name
    assert what in problem.detail
    assert "the-key-itself" not in problem.detail
