"""A path below a base URL is what httpx makes of both, or is refused."""

from typing import Final

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from durable_retry.attempt.http_client import require_below, target_url
from durable_retry.rules.config.dependency import Dependency

BASES: Final = (
    "https://api.example.com",
    "https://api.example.com/v1",
    "http://api.example.com:8080/v1/../v2",
    "https://api.example.com:443/a b/%2e",
    "http://[::1]:9/\u00fc",
    "https://b\u00fccher.example/x.y/..",
    "",
)
PIECES: Final = (
    *("/", "//", "a", "orders", "17", ".", "..", "...", ".a", "a.", "a..b", "%", "%2e%2E", "%2F", "%252e"),
    *(
        "?",
        "#",
        "@",
        ":",
        "\\",
        ";",
        "=",
        "&",
        "+",
        " ",
        "\t",
        "\n",
        "\x00",
        "\x7f",
        "\u00fc",
        "\u2025",
        "\ud800",
    ),
    *("~", "-", "_", "http://evil.example.com/", "evil.example.com", "user:word@"),
)
PATHS: Final = st.one_of(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.text(max_size=20))


@settings(max_examples=1_000)
@given(base_url=st.sampled_from(BASES), path=PATHS)
@example(BASES[1], "/a" * 40_000)
@example(BASES[1], "/a" * 500)
@example(BASES[1], "/" * 70_000)
def test_a_path_is_joined_as_httpx_does_or_refused(base_url: str, path: str) -> None:
    dependency = Dependency(name="api", base_url=base_url)
    try:
        url = httpx.URL(f"{base_url}/{path.lstrip('/')}" if path else base_url)
        require_below(dependency, url)
    except (httpx.InvalidURL, ValueError) as error:
        with pytest.raises(type(error)):
            target_url(dependency, path)
        return
    joined = target_url(dependency, path)
    assert joined == url
    assert (joined.raw_path, joined.netloc, joined.path) == (url.raw_path, url.netloc, url.path)
    assert joined.copy_with(params={"a": "b"}) == url.copy_with(params={"a": "b"})
