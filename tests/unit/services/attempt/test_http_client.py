import httpx
import pytest

from durable_retry.engine.dependency import Dependency
from durable_retry.services.attempt.http_client import (
    EscapedBaseUrlError,
    SendProgress,
    require_below,
    target_url,
)

API = Dependency(name="api", base_url="https://api.example.com/v1")
ROOT = Dependency(name="root", base_url="https://api.example.com")


@pytest.mark.parametrize(
    ("dependency", "path", "url"),
    [
        (API, "/charges", "https://api.example.com/v1/charges"),
        (API, "charges", "https://api.example.com/v1/charges"),
        (API, "", "https://api.example.com/v1"),
        (API, "/", "https://api.example.com/v1/"),
        (ROOT, "/a/b", "https://api.example.com/a/b"),
        (API, "/a b", "https://api.example.com/v1/a%20b"),
        (API, "//evil.example.com/x", "https://api.example.com/v1/evil.example.com/x"),
    ],
)
def test_paths_stand_below_the_base_url(dependency: Dependency, path: str, url: str) -> None:
    assert str(target_url(dependency, path)) == url


@pytest.mark.parametrize("path", ["/../admin", "/a/../../admin", "/.."])
def test_a_path_that_climbs_out_is_refused(path: str) -> None:
    with pytest.raises(EscapedBaseUrlError):
        target_url(API, path)


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com/v1/x",
        "https://api.example.com:8443/v1/x",
        "https://evil.example.com/v1/x",
        "https://api.example.com/v10/x",
        "https://api.example.com/",
    ],
)
def test_no_other_place_is_called(url: str) -> None:
    with pytest.raises(EscapedBaseUrlError):
        require_below(API, httpx.URL(url))


def test_a_time_limit_says_how_far_the_request_had_come() -> None:
    sending = SendProgress()
    assert sending.precise_names(TimeoutError()) == ["PoolTimeout"]
    sending.connecting = True
    assert sending.precise_names(TimeoutError()) == ["ConnectTimeout"]
    sending.sent = True
    assert sending.precise_names(TimeoutError()) == []
