"""Limits of paths and headers that callers set; which forms of a path climb is in `test_request.py`."""

import pytest

from durable_retry.engine.base.validation import (
    MAX_SECONDS,
    config_header_problem,
    header_name_problem,
    header_value_problem,
    path_problem,
)

CREDENTIALS = ["authorization", "Proxy-Authorization", "proxy-authenticate", "Cookie"]


def test_a_path_has_at_most_2048_characters() -> None:
    assert path_problem("a" * 2_048) is None
    assert path_problem("a" * 2_049) == "is longer than 2048 characters"


def test_a_header_value_has_at_most_4096_characters() -> None:
    assert header_value_problem("a" * 4_096) is None
    assert header_value_problem("a" * 4_097) == "is longer than 4096 characters"


def test_a_header_name_has_at_most_128_characters() -> None:
    assert header_name_problem("a" * 128) is None
    assert header_name_problem("a" * 129) is not None


def test_no_duration_is_longer_than_a_year() -> None:
    assert MAX_SECONDS == 365 * 86_400


@pytest.mark.parametrize("name", CREDENTIALS)
def test_only_the_configuration_may_set_credentials(name: str) -> None:
    assert header_name_problem(name) is not None
    assert config_header_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        *("Accept-Encoding", "X-HTTP-Method-Override", "X-HTTP-Method", "x-method-override"),
        *("X-Original-URL", "X-Rewrite-URL"),
    ],
)
def test_only_the_configuration_says_how_answers_are_packed_and_overrides_method_or_path(name: str) -> None:
    assert header_name_problem(name) is not None
    assert config_header_problem(name) is None


@pytest.mark.parametrize("name", ["Host", "connection", "HTTP2-Settings", "Content-Length", "no name", ""])
def test_the_configuration_may_not_set_what_belongs_to_the_connection(name: str) -> None:
    assert config_header_problem(name) is not None


def test_other_headers_may_be_set_by_both() -> None:
    assert header_name_problem("X-Thing") is None
    assert config_header_problem("X-Thing") is None
