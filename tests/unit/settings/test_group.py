import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from durable_retry.base.validation import Problem
from durable_retry.settings.catalogue import groups
from durable_retry.settings.group import SettingsError, SettingsGroup, setting


class Sample(SettingsGroup):
    heading: ClassVar[str] = "Sample"

    wait: float = setting("How long.", 2.5, unit="s", least=0, most=10)
    count: int = setting("How many.", 3, least=1)
    colour: str = setting("Which one.", "red", choices=("red", "Blue"))
    account_key: str = setting("A key.", name="AccountKey", secret=True)

    @classmethod
    def mistakes_across(cls, environ: Mapping[str, str]) -> Iterator[Problem]:
        if environ.get("COUNT") and not environ.get("AccountKey"):
            yield Problem("AccountKey", "is needed beside COUNT")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Sample()),
        ({"WAIT": "", "COLOUR": ""}, Sample()),
        ({"WAIT": "0"}, Sample(wait=0)),
        ({"WAIT": "10"}, Sample(wait=10)),
        ({"WAIT": "0.5"}, Sample(wait=0.5)),
        ({"COLOUR": "BLUE"}, Sample(colour="Blue")),
        ({"COUNT": "7", "AccountKey": "k", "OTHER": "x"}, Sample(count=7, account_key="k")),
    ],
)
def test_what_is_set_is_read_and_the_rest_has_its_default(environ: dict[str, str], expected: Sample) -> None:
    assert Sample.read(environ) == expected


@pytest.mark.parametrize(
    ("name", "text", "detail"),
    [
        ("WAIT", "-1", "must be a number of at least 0 and at most 10, not '-1'"),
        ("WAIT", "10.5", "must be a number of at least 0 and at most 10, not '10.5'"),
        ("WAIT", "nan", "must be a number of at least 0 and at most 10, not 'nan'"),
        ("WAIT", "1e1", "must be a number of at least 0 and at most 10, not '1e1'"),
        ("COUNT", "٣", "must be a whole number of at least 1, not '٣'"),
        ("COUNT", "1_000", "must be a whole number of at least 1, not '1_000'"),
        ("COUNT", " 5", "must be a whole number of at least 1, not ' 5'"),
        ("COUNT", "+5", "must be a whole number of at least 1, not '+5'"),
        ("COUNT", "1.5", "must be a whole number of at least 1, not '1.5'"),
        ("COUNT", "inf", "must be a whole number of at least 1, not 'inf'"),
        ("COUNT", "64k", "must be a whole number of at least 1, not '64k'"),
        ("COLOUR", "green", "must be one of red, Blue, not 'green'"),
    ],
)
def test_another_value_is_refused_with_what_is_allowed(name: str, text: str, detail: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Sample.read({name: text, "AccountKey": "k"})
    assert refused.value.problems == (Problem(name, detail),)


def test_every_mistake_is_reported_at_once_also_those_between_settings() -> None:
    with pytest.raises(SettingsError) as refused:
        Sample.read({"WAIT": "soon", "COUNT": "0", "COLOUR": "green"})
    assert [problem.pointer for problem in refused.value.problems] == [
        "WAIT",
        "COUNT",
        "COLOUR",
        "AccountKey",
    ]
    assert str(refused.value).endswith("; AccountKey: is needed beside COUNT")


def test_a_binding_refers_to_a_setting_by_its_name() -> None:
    assert Sample.reference_to("colour") == "%COLOUR%"
    assert Sample.name_of("account_key") == "AccountKey"


def test_a_secret_is_not_in_the_text_of_its_group() -> None:
    assert "hunter2" not in repr(Sample(account_key="hunter2"))


@pytest.mark.parametrize("group", groups())
def test_a_time_has_a_bound_within_the_calendar(group: type[SettingsGroup]) -> None:
    for described in group.described():
        if described.unit == "s":
            assert datetime.now(UTC) - timedelta(seconds=described.most or math.inf)


@pytest.mark.parametrize("group", groups())
def test_every_setting_of_the_app_says_what_it_is(group: type[SettingsGroup]) -> None:
    assert group.heading
    for described in group.described():
        assert described.meaning.endswith((".", "trusted"))
        assert described.is_number or not described.unit
