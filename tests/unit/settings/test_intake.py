from typing import Any

import pytest

from durable_retry.settings.group import SettingsError
from durable_retry.settings.intake import IntakeSettings


def read(**environ: str) -> IntakeSettings:
    return IntakeSettings.read(environ)


def mistakes(**environ: str) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        read(**environ)
    return {problem.pointer: problem.detail for problem in caught.value.problems}


def test_without_settings_the_defaults_hold() -> None:
    assert read() == IntakeSettings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INTAKE_ORDER", "always"),
        ("INTAKE_CONCURRENCY", "0"),
        ("INTAKE_CONCURRENCY", "many"),
        ("HTTP_CONCURRENCY", "-1"),
        ("HTTP_TASK_HUB_LAG_SECONDS", "soon"),
        ("INTAKE_RETRIES", "-2"),
        ("INTAKE_RETRIES", "0"),
        ("KEY_POINTERS_KAKFA", "/a"),
        ("INTAKE_PAUSE_SECONDS", "nan"),
        ("INTAKE_TASK_HUB_LAG_SECONDS", "inf"),
        ("KEY_POINTERS", "order"),
        ("KEY_POINTERS_QUEUE", "/a, b"),
    ],
)
def test_a_value_that_cannot_be_used_is_reported(name: str, value: str) -> None:
    assert list(mistakes(**{name: value})) == [name]


def test_keys_are_made_of_fields() -> None:
    assert read(KEY_POINTERS="/a, /b").pointers_for("queue") == ("/a", "/b")
    assert read(KEY_POINTERS="/a", KEY_POINTERS_QUEUE="/c").pointers_for("queue") == ("/c",)
    assert read(KEY_POINTERS="/a").pointers_for("a feature that is gone") == ()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (False, False)),
        ({"INTAKE_ORDER": "none"}, (False, False)),
        ({"INTAKE_ORDER": "partition"}, (True, False)),
        ({"INTAKE_ORDER": "order_key"}, (True, True)),
    ],
)
def test_order_is_kept_where_it_is_asked_for(environ: dict[str, Any], expected: tuple[bool, bool]) -> None:
    settings = read(**environ)
    assert (settings.keeps_order, settings.gives_order_keys) == expected
