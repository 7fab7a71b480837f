from collections.abc import Iterator
from typing import Any

import pytest

from durable_retry.base.validation import validated
from durable_retry.features.preview.routes import PolicyQuestion, previewed
from durable_retry.features.preview.rules import PolicyPreview
from durable_retry.http.answers import json_answer
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from tests.support.mistakes import pointers_of
from tests.support.narrowing import existing

DEPENDENCIES = """
[dependencies.payments]
base_url = "https://payments.example.com"
retry = { strategy = "fixed", initial_seconds = 4.0, jitter = "none", max_attempts = 3 }
timeouts = { attempt_seconds = 5, deadline_seconds = 60 }
limits = { max_concurrency = 10 }
"""


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    with using(parse_config(DEPENDENCIES, {})):
        yield


def asked(**body: Any) -> PolicyPreview:
    return previewed(validated(PolicyQuestion, body))


def pointers(**body: Any) -> list[str]:
    return pointers_of(asked, **body)


def test_a_dependencys_own_policy_timeouts_and_limits_count() -> None:
    shown = asked(dependency="payments")
    assert [wait.most_seconds for wait in shown.waits] == [4, 4]
    assert (shown.deadline_seconds, shown.fits_deadline) == (60, True)
    assert existing(shown.limits).slowest_per_second == 2


def test_changes_are_those_of_an_operation() -> None:
    shown = asked(dependency="payments", retry={"max_attempts": 2}, deadline_seconds=10.0)
    assert [wait.most_seconds for wait in shown.waits] == [4]
    assert (shown.deadline_seconds, shown.fits_deadline) == (10, False)


def test_a_policy_by_itself_has_no_limits() -> None:
    assert asked(retry={"max_attempts": 2}).limits is None


def test_what_is_no_policy_is_refused_by_its_pointer() -> None:
    assert pointers(dependency="nobody") == ["/dependency"]
    assert pointers(retry={"factor": 0.0}) == ["/retry/factor"]
    assert pointers() == [""]


def test_the_answer_is_read_back_by_its_class_also_from_a_later_version() -> None:
    shown = asked(dependency="payments")
    body = json_answer(shown).get_body().decode()
    assert PolicyPreview.model_validate_json(body) == shown
    later = body.replace('{"waits"', '{"added": 1, "waits"')
    assert PolicyPreview.model_validate_json(later) == shown
