"""Exceptions of libraries; classes with their packages' names stand for those that are not installed here."""

from types import SimpleNamespace
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError

from durable_retry.attempt.bodies import FailedAnswer, answer_of
from durable_retry.base.names import Category
from durable_retry.rules.retry.classify import (
    UNAUTHORIZED,
    Classification,
    classify_handler_failure,
    names_of,
)


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


@pytest.mark.parametrize("charset", ["punycode", "utf-8", "latin-1"])
def test_no_more_of_a_body_is_decoded_than_is_kept(charset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = httpx_error()
    assert isinstance(error, httpx.HTTPStatusError)
    error.response._content = b"caf\xe9 " + b"x" * 1_000_000
    error.response.headers["content-type"] = f"text/plain; charset={charset}"
    monkeypatch.setattr(httpx.Response, "text", None)
    found = answer_of(error)
    assert found is not None
    assert found.body.startswith("café xx" if charset == "latin-1" else "caf\\xe9 xx")
    assert len(found.body) == 16_384


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


REDIS = "redis.exceptions."
# The classes and their bases are those of SQLAlchemy 2.1, psycopg 3.3 and redis 8.1.
FAILURES = [
    (exception("sqlalchemy.exc.IntegrityError"), Category.BUSINESS_RULE),
    (exception("sqlalchemy.exc.CompileError"), Category.MALFORMED),
    (exception("sqlalchemy.exc.OperationalError"), Category.TRANSIENT),
    (exception("psycopg.errors.UniqueViolation", "psycopg.IntegrityError"), Category.BUSINESS_RULE),
    (exception("psycopg.errors.DeadlockDetected", "psycopg.OperationalError"), Category.TRANSIENT),
    (exception("psycopg.errors.UndefinedTable", "psycopg.ProgrammingError"), Category.MALFORMED),
    (
        exception("psycopg.errors.InsufficientPrivilege", "psycopg.ProgrammingError"),
        Category.UNAUTHORIZED,
    ),
    (exception("psycopg.errors.InvalidPassword", "psycopg.OperationalError"), Category.UNAUTHORIZED),
    (exception(f"{REDIS}ConnectionError"), Category.TRANSIENT),
    (exception(f"{REDIS}ResponseError"), Category.MALFORMED),
    (exception(f"{REDIS}ReadOnlyError", f"{REDIS}ResponseError"), Category.TRANSIENT),
    (exception(f"{REDIS}OutOfMemoryError", f"{REDIS}ResponseError"), Category.TRANSIENT),
    (exception(f"{REDIS}MasterDownError", f"{REDIS}ClusterDownError"), Category.TRANSIENT),
    (exception(f"{REDIS}MovedError", f"{REDIS}AskError"), Category.TRANSIENT),
    (exception(f"{REDIS}AuthorizationError", f"{REDIS}ConnectionError"), Category.UNAUTHORIZED),
    (requests.exceptions.InvalidURL(), Category.MALFORMED),
    (requests.exceptions.InvalidHeader(), Category.MALFORMED),
    (requests.exceptions.ReadTimeout(), Category.TRANSIENT),
    (aiohttp.NonHttpUrlClientError("ftp://a"), Category.MALFORMED),
    (aiohttp.ServerDisconnectedError(), Category.TRANSIENT),
    (ServiceRequestError("away"), Category.TRANSIENT),
    (ClientAuthenticationError("no"), Category.UNAUTHORIZED),
]


@pytest.mark.parametrize(
    ("error", "category"),
    FAILURES,
    ids=lambda value: names_of(value)[0] if isinstance(value, Exception) else value.value,
)
def test_common_libraries_are_known_by_default(error: Exception, category: Category) -> None:
    assert classify_handler_failure(names_of(error)).category is category


@pytest.mark.parametrize(
    ("name", "is_of_credential"),
    [
        ("psycopg.errors.InvalidPassword", True),
        ("psycopg.errors.InsufficientPrivilege", False),
        (f"{REDIS}AuthenticationError", True),
        (f"{REDIS}NoPermissionError", False),
    ],
)
def test_a_library_tells_a_refused_credential_from_a_missing_right(
    name: str, *, is_of_credential: bool
) -> None:
    assert classify_handler_failure(
        [name.replace("errors.", "").replace("exceptions.", "")]
    ) == Classification(Category.UNAUTHORIZED, counted=not is_of_credential)


def test_what_classify_calls_unauthorized_is_a_refused_credential() -> None:
    rules = {"OSError": Category.UNAUTHORIZED}
    assert classify_handler_failure(["OSError"], rules=rules) == UNAUTHORIZED


def test_an_exception_of_a_driver_is_seen_through_the_one_of_sqlalchemy() -> None:
    refused_password = exception("psycopg.errors.InvalidPassword", "psycopg.OperationalError")
    error = exception("sqlalchemy.exc.OperationalError", orig=refused_password)
    assert classify_handler_failure(names_of(error)).category is Category.UNAUTHORIZED
    rules = {"psycopg.errors.InvalidPassword": Category.TRANSIENT}
    assert classify_handler_failure(names_of(error), rules=rules).category is Category.TRANSIENT
    assert names_of(exception("sqlalchemy.exc.OperationalError", orig="no exception"))[0].startswith("sqlal")


def test_a_stream_that_was_not_read_is_not_read_for_its_text() -> None:
    response = requests.Response()
    response.status_code = 503
    found = answer_of(requests.HTTPError(response=response))
    assert found is not None
    assert (found.status_code, found.body, response._content_consumed) == (503, "", False)


@pytest.mark.parametrize("name", ["redis.exceptions.TimeoutError", "redis.TimeoutError", "TimeoutError"])
def test_a_type_may_be_named_in_full_by_its_package_or_alone(name: str) -> None:
    error = exception("redis.exceptions.TimeoutError")
    rules = {name: Category.AMBIGUOUS}
    assert classify_handler_failure(names_of(error), rules=rules).category is Category.AMBIGUOUS
    other = exception("socket.TimeoutError")
    category = classify_handler_failure(names_of(other), rules=rules).category
    assert category is (Category.AMBIGUOUS if "." not in name else Category.TRANSIENT)
