from typing import Any

import pytest

from durable_retry.engine.base.validation import Problem
from durable_retry.settings.setting import Number, Text, WholeNumber

WAIT = Number("WAIT", "How long.", 2.5, "s", least=0, most=10)
COUNT = WholeNumber("COUNT", "How many.", 3, least=1)
COLOUR = Text("COLOUR", "Which one.", "red", choices=("red", "Blue"))


@pytest.mark.parametrize(
    ("setting", "text", "expected"),
    [(WAIT, "", 2.5), (WAIT, "0", 0.0), (WAIT, "10", 10.0), (COUNT, "", 3), (COUNT, "7", 7)],
)
def test_a_number_in_its_range_is_taken(setting: Number, text: str, expected: float) -> None:
    problems: list[Problem] = []
    found = setting.read({setting.name: text}, problems)
    assert (found, problems) == (expected, [])
    assert isinstance(found, int) is isinstance(setting, WholeNumber)


@pytest.mark.parametrize(
    ("setting", "text", "detail"),
    [
        (WAIT, "-1", "must be a number of at least 0 and at most 10, not '-1'"),
        (WAIT, "10.5", "must be a number of at least 0 and at most 10, not '10.5'"),
        (WAIT, "nan", "must be a number of at least 0 and at most 10, not 'nan'"),
        (COUNT, "1.5", "must be a whole number of at least 1, not '1.5'"),
        (COUNT, "inf", "must be a whole number of at least 1, not 'inf'"),
        (COUNT, "64k", "must be a whole number of at least 1, not '64k'"),
    ],
)
def test_another_number_is_a_problem_and_the_default_holds(setting: Number, text: str, detail: str) -> None:
    problems: list[Problem] = []
    assert setting.read({setting.name: text}, problems) == setting.default
    assert problems == [Problem(setting.name, detail)]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, "red"), ({"COLOUR": ""}, "red"), ({"COLOUR": "BLUE"}, "Blue")],
)
def test_a_word_is_chosen_in_any_case(environ: dict[str, Any], expected: str) -> None:
    problems: list[Problem] = []
    assert COLOUR.choice(environ, problems) == expected
    assert problems == []


def test_another_word_is_reported() -> None:
    problems: list[Problem] = []
    assert COLOUR.choice({"COLOUR": "green"}, problems) == "red"
    assert problems == [Problem("COLOUR", "must be one of red, Blue, not 'green'")]


def test_a_binding_refers_to_a_setting_by_its_name() -> None:
    assert COLOUR.reference == "%COLOUR%"
