from typing import Any

import azure.functions as func
import pytest

from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.http import routes
from durable_retry.http.answers import BodyTooLargeError
from durable_retry.http.routes import read_body, tenant_of
from durable_retry.settings.app import AppSettings
from durable_retry.triggers.http.submissions import preferred_wait_seconds


def a_request(body: bytes = b"", headers: dict[str, str] | None = None) -> func.HttpRequest:
    return func.HttpRequest("POST", "http://localhost/api/operations", headers=headers or {}, body=body)


def read_as_it_is(request: func.HttpRequest) -> Any:
    return read_body(request, lambda document: document)


def test_a_body_at_the_limit_is_read_and_one_over_it_is_not() -> None:
    at_limit = b'"' + b"x" * (64 * 1024 - 2) + b'"'
    assert len(read_as_it_is(a_request(at_limit))) == 64 * 1024 - 2
    with pytest.raises(BodyTooLargeError, match="65536"):
        read_as_it_is(a_request(at_limit + b" "))


@pytest.mark.parametrize("body", [b"", b"nope", b"\xff", b"[" * 5_000, b"NaN"])
def test_what_is_not_json_is_reported_as_such(body: bytes) -> None:
    with pytest.raises(InvalidInputError):
        read_as_it_is(a_request(body))


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        ("wait=5", 5),
        ("respond-async, wait=10", 10),
        ("WAIT=7; foo", 7),
        ("wait=100", 30),
        ("wait=0", 0),
        ("wait=soon", 0),
        ("await=5", 0),
        ("", 0),
    ],
)
def test_a_preference_to_wait_is_read_and_bounded(prefer: str, seconds: float) -> None:
    assert preferred_wait_seconds(a_request(headers={"Prefer": prefer})) == seconds


def test_there_is_one_tenant_unless_a_header_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    request = a_request(headers={"X-MS-CLIENT-PRINCIPAL-ID": "a"})
    assert tenant_of(request) == ""
    settings = AppSettings(tenant_header="X-MS-CLIENT-PRINCIPAL-ID")
    monkeypatch.setattr(routes, "app_settings", lambda: settings)
    assert tenant_of(request) == "a"
