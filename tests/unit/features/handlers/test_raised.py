"""Shapes of exceptions; classes with their packages' names stand for those of libraries."""

from enum import Enum, StrEnum
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import requests
from azure.core.exceptions import HttpResponseError

from durable_retry.base.foreign import names_of
from durable_retry.features.handlers.raised import (
    FailedAnswer,
    answer_of,
    answer_within,
    links_of,
)
from tests.support.narrowing import existing, of_type


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
        exception("vendor.X", response=refused(text="slow down", request=POST)),
        exception(
            "vendor.X", http_status=429, headers={"Retry-After": "7"}, http_body="slow down", _request=POST
        ),
        httpx_error(),
    ],
    ids=lambda error: names_of(error)[0],
)
def test_the_answer_is_found_with_its_status_headers_method_and_body(error: Exception) -> None:
    found = existing(answer_of(error))
    assert found.headers["retry-after"] == "7"
    assert (found.status_code, found.method, found.body) == (429, ANSWER.method, ANSWER.body)


@pytest.mark.parametrize("charset", ["punycode", "utf-8", "latin-1"])
def test_no_more_of_a_body_is_decoded_than_is_kept(charset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = of_type(httpx.HTTPStatusError, httpx_error())
    error.response._content = b"caf\xe9 " + b"x" * 1_000_000
    error.response.headers["content-type"] = f"text/plain; charset={charset}"
    monkeypatch.setattr(httpx.Response, "text", None)
    found = existing(answer_of(error))
    assert found.body.startswith("café xx" if charset == "latin-1" else "caf\\xe9 xx")
    assert len(found.body) == 16_384


@pytest.mark.parametrize(
    "error",
    [
        exception("requests.exceptions.Timeout", response=None),
        exception("app.JobError", status=404),
        exception("app.JobError", status=7, headers={}),
        exception("app.JobError", response="a text"),
        exception("app.JobError", response={"status": 404}),
        HttpResponseError("lost"),
    ],
)
def test_without_a_status_and_headers_there_is_no_answer(error: Exception) -> None:
    assert answer_of(error) is None


def test_a_body_that_was_not_read_is_missing() -> None:
    request = httpx.Request("GET", "http://a")
    answer = httpx.Response(503, stream=httpx.ByteStream(b"x"), request=request)
    found = existing(answer_of(httpx.HTTPStatusError("", request=request, response=answer)))
    assert (found.status_code, found.body) == (503, "")


def test_what_is_inside_of_an_exception_comes_after_it_and_a_driver_s_before_that_of_sqlalchemy() -> None:
    driver, inner, outer = exception("psycopg.Error"), exception("azure.Error"), exception("app.Error")
    wrapper = exception("sqlalchemy.exc.DBAPIError", orig=driver)
    wrapper.__cause__ = driver
    inner.inner_exception = wrapper  # type: ignore[attr-defined]
    outer.__cause__ = inner
    assert links_of(outer) == [outer, inner, driver, wrapper]
    assert links_of(exception("sqlalchemy.exc.DBAPIError", orig="no exception"))[1:] == []


@pytest.mark.parametrize("place", ["orig", "__cause__", "inner_exception"])
def test_an_exception_may_be_its_own_cause_or_one_of_a_hundred(place: str) -> None:
    own = exception("app.Error")
    setattr(own, place, own)
    assert links_of(own) == [own]
    links = [exception(f"app.Error{number}") for number in range(100)]
    for outer, inner in pairwise(links):
        setattr(outer, place, inner)
    assert 8 <= len(links_of(links[0])) <= 16


def test_the_answer_within_is_the_outermost() -> None:
    outer = exception("app.Error")
    outer.__cause__ = exception("vendor.Error", response=refused(text="slow down"))
    found = existing(answer_within(outer))
    assert (answer_of(outer), found.status_code, found.body) == (None, 429, "slow down")
    assert answer_within(exception("app.Error")) is None


class Code(Enum):
    UNAVAILABLE = (14, "unavailable")


class Word(StrEnum):
    BUSY = "ServerBusy"


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"code": 112}, "112"),
        ({"code": "rate_limit"}, "rate_limit"),
        ({"code": lambda: Code.UNAVAILABLE}, "UNAVAILABLE"),
        ({"grpc_status_code": Code.UNAVAILABLE}, "UNAVAILABLE"),
        ({"error_code": Word.BUSY}, "ServerBusy"),
        ({"status_code": 449}, "449"),
        ({"error": "server-busy"}, "server-busy"),
        ({"response": {"Error": {"Code": "SlowDown"}}}, "SlowDown"),
        ({"_error_labels": {"RetryableWriteError"}}, "RetryableWriteError"),
        ({"args": ("BUSY a script runs",)}, "BUSY"),
    ],
)
def test_a_code_stands_behind_the_names_of_the_classes_and_those_before_the_classes(
    attributes: dict[str, Any], code: str
) -> None:
    names = names_of(exception("vendor.errors.Away", "vendor.errors.Base", **attributes))
    assert names[:3] == [f"vendor.errors.Away.{code}", f"vendor.Away.{code}", f"Away.{code}"]
    assert names.index(f"vendor.Base.{code}") < names.index("vendor.errors.Away")


@pytest.mark.parametrize("code", [None, "", "two words", "x" * 65, object(), lambda: 1 / 0, [1]])
def test_what_is_no_code_gives_no_name(code: object) -> None:
    assert names_of(exception("vendor.Away", code=code))[:2] == ["vendor.Away", "Away"]


def test_a_stream_that_was_not_read_is_not_read_for_its_text() -> None:
    response = requests.Response()
    response.status_code = 503
    found = existing(answer_of(requests.HTTPError(response=response)))
    assert (found.status_code, found.body, response._content_consumed) == (503, "", False)


def test_a_type_may_be_named_in_full_by_its_package_or_alone() -> None:
    names = names_of(exception("redis.exceptions.TimeoutError"))
    assert names[:3] == ["redis.exceptions.TimeoutError", "redis.TimeoutError", "TimeoutError"]
