import pytest
from starlette.requests import Request

from onebox.http.access import Browsers, is_loopback


def request(path: str = "/api/x", method: str = "GET", **headers: str) -> Request:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "headers": lines,
        "query_string": b"",
    }
    return Request(scope)


def status(browsers: Browsers, asked: Request) -> int | None:
    refusal = browsers.refusal(asked)
    return None if refusal is None else refusal.status_code


LOOPBACK = Browsers("127.0.0.1")
EXPOSED = Browsers("0.0.0.0", ("Gate.example.",))  # noqa: S104 # an address to test with


@pytest.mark.parametrize(
    "host", ["127.0.0.1:7071", "127.1.2.3", "localhost", "LOCALHOST.:80", "app.localhost:1", "[::1]:7071"]
)
def test_loopback_names_are_answered(host: str) -> None:
    assert status(LOOPBACK, request(host=host)) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evillocalhost", "10.0.0.1", "127.0.0.1.nip.io", "", "[::2]"],
)
def test_foreign_host_names_are_refused(host: str) -> None:
    assert status(LOOPBACK, request(host=host)) == 403


@pytest.mark.parametrize("second", [b"evil.example", b"localhost"])
def test_two_host_headers_are_refused(second: bytes) -> None:
    asked = request(host="localhost")
    asked.scope["headers"].append((b"host", second))
    assert status(LOOPBACK, asked) == 403


@pytest.mark.parametrize("browsers", [LOOPBACK, EXPOSED])
@pytest.mark.parametrize(
    "host",
    [
        *(
            "localhost:",
            "localhost:x",
            "localhost:80:80",
            "localhost:123456",
            "localhost:-1",
            "localhost:80/x",
        ),
        *("me@localhost", "localhost@evil.example", "localhost,evil.example", "localhost evil.example"),
        *(
            "[localhost]",
            "[::1",
            "::1",
            "[::1]evil.example",
            "[[::1]]",
            "[::1%25lo]",
            "127.0.0.1\x00",
            "(local)",
        ),
        *("http://localhost", "localhost\\evil", "127.0.0.1#", "127.0.0.1?x", "l\u00f6calhost"),
    ],
)
def test_other_forms_than_a_name_or_an_address_with_a_port_are_refused(browsers: Browsers, host: str) -> None:
    assert status(browsers, request(host=host)) == 403


def test_only_http_1_0_may_leave_the_host_out() -> None:
    asked = request()
    asked.scope["http_version"] = "1.0"
    assert status(LOOPBACK, asked) is None
    asked.scope["http_version"] = "1.1"
    assert status(LOOPBACK, asked) == 403


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", "http://localhost.evil.example", "http://[", "file://"]
)
def test_pages_of_another_origin_are_refused(origin: str) -> None:
    assert status(LOOPBACK, request(host="localhost:7071", origin=origin)) == 403


@pytest.mark.parametrize("path", ["/api/operations", "/api/circuits/payments/open"])
@pytest.mark.parametrize(
    "kind", [{}, {"content_type": "text/plain"}, {"content_type": "multipart/form-data"}]
)
def test_a_page_of_another_port_writes_only_what_a_browser_asks_for_first(
    path: str, kind: dict[str, str]
) -> None:
    page = {"host": "localhost:7071", "origin": "http://localhost:3000"}
    assert status(LOOPBACK, request(path, "POST", **page, **kind)) == 415
    assert status(LOOPBACK, request(path, "POST", **page, content_type="application/json")) is None
    assert (
        status(LOOPBACK, request(path, "POST", **page | {"origin": "http://localhost:7071"}, **kind)) is None
    )
    assert status(LOOPBACK, request(path, "POST", host="localhost:7071", **kind)) is None


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1:7071", "http://[::1]:1"])
def test_pages_of_this_machine_may_call(origin: str) -> None:
    assert status(LOOPBACK, request(host="localhost:7071", origin=origin)) is None


def test_images_and_scripts_of_another_site_are_refused_and_links_are_followed() -> None:
    assert status(LOOPBACK, request(host="localhost", sec_fetch_site="cross-site")) == 403
    link = request(host="localhost", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    assert status(LOOPBACK, link) is None


@pytest.mark.parametrize("host", ["10.1.2.3:7071", "[fe80::1]", "gate.example", "localhost"])
def test_a_host_that_listens_everywhere_answers_to_addresses_and_to_names_it_is_given(host: str) -> None:
    assert status(EXPOSED, request(host=host)) is None


def test_a_host_that_listens_everywhere_refuses_other_names_and_pages_of_other_addresses() -> None:
    assert status(EXPOSED, request(host="evil.example")) == 403
    assert status(EXPOSED, request(host="10.1.2.3", origin="http://6.6.6.6")) == 403
    assert status(EXPOSED, request(host="10.1.2.3:1", origin="http://10.1.2.3:2")) is None
    assert status(EXPOSED, request(host="10.1.2.3", origin="https://gate.example")) is None


@pytest.mark.parametrize(
    ("path", "code"),
    [("/admin/functions/x", 415), ("/ADMIN/functions/x", 415), ("/runtime/webhooks/durabletask/x", 400)],
)
@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "text/json"])
def test_bodies_for_the_hosts_own_endpoints_must_be_json(path: str, code: int, kind: str) -> None:
    asked = request(path, "POST", host="localhost", content_length="2", content_type=kind)
    assert status(LOOPBACK, asked) == code
    chunked = request(path, "POST", host="localhost", transfer_encoding="chunked", content_type=kind)
    assert status(LOOPBACK, chunked) == code


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/cloudevents+json"]
)
def test_json_passes(kind: str) -> None:
    asked = request("/admin/functions/x", "POST", host="localhost", content_length="2", content_type=kind)
    assert status(LOOPBACK, asked) is None


def test_posts_without_a_body_and_functions_need_no_content_type() -> None:
    assert status(LOOPBACK, request("/runtime/x", "POST", host="localhost", content_length="0")) is None
    form = request("/api/form", "POST", host="localhost", content_length="9", content_type="text/plain")
    assert status(LOOPBACK, form) is None


def test_names_that_only_mean_this_machine() -> None:
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")  # noqa: S104 # as above
    assert not is_loopback("")
