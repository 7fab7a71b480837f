"""Exceptions of libraries that are not installed here: classes with their packages' names stand for them."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

from durable_retry.engine.base.names import Category
from durable_retry.engine.retry.classify import classify_handler_failure, names_of
from durable_retry.services.attempt.failed_answers import FailedAnswer, answer_of


def exception(name: str, *bases: str, **attributes: Any) -> Exception:
    """Return an exception of a class of this name, such as `requests.exceptions.HTTPError`."""
    parents = tuple(type(exception(base)) for base in bases) or (Exception,)
    module, _, short = name.rpartition(".")
    error: Exception = type(short, parents, {"__module__": module})()
    for attribute, value in attributes.items():
        setattr(error, attribute, value)
    return error


def refused(**more: Any) -> Any:
    return SimpleNamespace(status_code=429, headers={"Retry-After": "7"}, **more)


ANSWER = FailedAnswer(429, {"retry-after": "7"}, "POST", "slow down")
POST = SimpleNamespace(method="POST")


def httpx_error() -> Exception:
    request = httpx.Request("POST", "http://a")
    answer = httpx.Response(429, headers={"Retry-After": "7"}, text="slow down", request=request)
    with pytest.raises(httpx.HTTPStatusError) as raised:
        answer.raise_for_status()
    return raised.value


@pytest.mark.parametrize(
    "error",
    [
        exception("requests.exceptions.HTTPError", response=refused(text="slow down", request=POST)),
        exception(
            "aiohttp.client_exceptions.ClientResponseError",
            status=429,
            headers={"Retry-After": "7"},
            request_info=POST,
            message="slow down",
        ),
        exception("azure.core.exceptions.X", response=refused(text=lambda: "slow down", request=POST)),
        httpx_error(),
    ],
    ids=lambda error: names_of(error)[0],
)
def test_the_answer_is_found_with_its_status_headers_method_and_body(error: Exception) -> None:
    found = answer_of(error)
    assert found is not None
    assert found.headers["retry-after"] == "7"
    assert (found.status_code, found.method, found.body) == (429, ANSWER.method, ANSWER.body)


def test_without_an_answer_or_from_an_unknown_library_there_is_none() -> None:
    assert answer_of(exception("requests.exceptions.Timeout", response=None)) is None
    assert answer_of(exception("vendor.Error", response=refused())) is None
    assert answer_of(HttpResponseError("lost")) is None


def test_a_body_that_was_not_read_is_missing() -> None:
    request = httpx.Request("GET", "http://a")
    answer = httpx.Response(503, stream=httpx.ByteStream(b"x"), request=request)
    found = answer_of(httpx.HTTPStatusError("", request=request, response=answer))
    assert found is not None
    assert (found.status_code, found.body) == (503, "")


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (exception("sqlalchemy.exc.IntegrityError"), Category.BUSINESS_RULE),
        (exception("sqlalchemy.exc.OperationalError"), Category.TRANSIENT),
        (exception("psycopg.errors.UniqueViolation", "psycopg.IntegrityError"), Category.BUSINESS_RULE),
        (exception("redis.exceptions.ConnectionError"), Category.TRANSIENT),
        (exception("redis.exceptions.ResponseError"), Category.MALFORMED),
        (exception("redis.exceptions.ReadOnlyError", "redis.exceptions.ResponseError"), Category.TRANSIENT),
        (exception("requests.exceptions.InvalidURL"), Category.MALFORMED),
        (ClientAuthenticationError("no"), Category.UNAUTHORIZED),
    ],
    ids=lambda value: names_of(value)[0] if isinstance(value, Exception) else value.value,
)
def test_common_libraries_are_known_by_default(error: Exception, category: Category) -> None:
    assert classify_handler_failure(names_of(error)).category is category


@pytest.mark.parametrize("name", ["redis.exceptions.TimeoutError", "redis.TimeoutError", "TimeoutError"])
def test_a_type_may_be_named_in_full_by_its_package_or_alone(name: str) -> None:
    error = exception("redis.exceptions.TimeoutError")
    overrides = {name: Category.AMBIGUOUS}
    assert classify_handler_failure(names_of(error), overrides=overrides).category is Category.AMBIGUOUS
    other = exception("socket.TimeoutError")
    category = classify_handler_failure(names_of(other), overrides=overrides).category
    assert category is (Category.AMBIGUOUS if "." not in name else Category.TRANSIENT)
