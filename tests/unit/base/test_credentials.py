import base64
import html
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from durable_retry.base.credentials import Credentials

KEY = 'ses/me "open" & ü+0'
BEARER = Credentials([f"Bearer {KEY}"])
PLAIN = Credentials(["Bearer sesame-open-1234567"])


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        json.dumps(KEY),
        json.dumps(KEY, ensure_ascii=False),
        json.dumps(KEY).replace("/", "\\/"),
        json.dumps({"a": json.dumps({"b": json.dumps(KEY)})}),
        "".join(f"\\u{ord(char):04X}" for char in KEY),
        "".join(f"\\x{byte:02x}" for byte in KEY.encode()),
        "".join(f"\\U{ord(char):08x}" for char in KEY),
        "".join(f"\\{byte:03o}" for byte in KEY.encode()),
        "".join(f"\\u{{{ord(char):X}}}" for char in KEY),
        "".join(f"%u{ord(char):04X}" for char in KEY),
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        quote(KEY),
        quote(KEY, safe="").lower(),
        quote_plus(KEY),
        quote(quote(KEY, safe="")),
        html.escape(KEY),
        html.escape(html.escape(KEY)),
        "".join(f"&#{ord(char)};" for char in KEY),
        "".join(f"&#x{ord(char):04X};" for char in KEY),
        "ses&sol;me &quot;open&quot; &amp; &uuml;&plus;0",
        repr(KEY),
        repr(repr(KEY)),
    ],
)
def test_a_credential_is_masked_in_every_form(written: str) -> None:
    masked = BEARER.masked(f"got {written}, refused")
    assert masked.startswith("got ")
    assert masked.endswith(", refused")
    assert "open" not in masked
    assert BEARER.masked(masked) == masked


OPEN = "sesame-open/1234567=="


@pytest.mark.parametrize(
    "written",
    [
        "".join(f"={ord(char):02X}" for char in OPEN),
        OPEN.replace("=", "=3D"),
        OPEN.replace("=", "=3D")[:9] + "=\r\n" + OPEN.replace("=", "=3D")[9:],
        OPEN.encode("utf-16-le").decode("latin-1"),
        OPEN.encode("utf-16-be").decode("latin-1"),
        json.dumps(OPEN.encode("utf-16-le").decode("latin-1")),
        base64.encodebytes(f"{'a' * 51}{OPEN}".encode()).decode(),
        json.dumps(base64.encodebytes(f"{'a' * 51}{OPEN}".encode()).decode()),
        "\x00".join(OPEN.replace("/", "%2F")),
    ],
)
@pytest.mark.parametrize("around", ["got <{}>, refused", "{}", '{{"a": "{}"}}'])
def test_a_credential_is_masked_in_codings_that_put_something_between(written: str, around: str) -> None:
    known = Credentials([f"Bearer {OPEN}"])
    text = around.format(written.strip('"\n') if '"' in around else written)
    for masked in (known.masked(text), json.loads(json.dumps(known.without({"a": text})[0]))["a"]):
        assert masked.count("***") == 1
        assert len(masked) < len(text) - len(OPEN) + 5
        assert known.masked(masked) == masked


@pytest.mark.parametrize("times", [1, 2])
def test_a_credential_with_backslashes_is_masked_wherever_json_doubles_them(times: int) -> None:
    key = f"sesame{'\\' * times}open-1234567"
    known = Credentials([key])
    for written in (key, json.dumps(key), json.dumps({"a": json.dumps(key)}), f"got {quote(key)}"):
        assert known.masked(written).count("***") == 1
        assert "open" not in known.masked(written)


def test_what_is_decoded_to_be_compared_is_shown_as_it_came() -> None:
    text = "a=3Db\nc=\r\nddddddddddddddddd\ne \\101 \\012\x00e"
    assert PLAIN.masked(text) == text
    assert PLAIN.masked(f"{text} sesame-open-123456\n7 {text}") == f"{text} *** {text}"
    assert PLAIN.masked(f"{text} sesame-op=\nen-1", is_cut=True) == f"{text} ***"


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "Bearer "])
@pytest.mark.parametrize("behind", ["", "z", "zy", "zyx"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_credential_is_masked_in_base64(encode: Callable[[bytes], bytes], before: str, behind: str) -> None:
    key = "sesame~?open~~>>1234"
    packed = encode(f"{before}{key}{behind}".encode()).decode()
    masked = Credentials([key]).masked(f"got {packed}, refused")
    begin, _, end = masked.removeprefix("got ").removesuffix(", refused").partition("***")
    assert (packed.startswith(begin), packed.endswith(end)) == (True, True)
    assert len(begin) <= len(before) * 4 / 3 + 1
    assert len(end) <= len(behind) * 4 / 3 + 4


def test_of_a_pair_of_user_and_password_each_part_is_a_credential() -> None:
    pair = base64.b64encode(b"user:sesame-open").decode()
    basic = Credentials([f"Basic {pair}"])
    assert basic.masked(f"{pair} user:sesame-open sesame-open user") == "*** *** *** user"
    assert Credentials(["Basic sesame-open"]).masked("sesame-open") == "***"


def test_the_values_of_cookies_are_credentials() -> None:
    assert Credentials(["session=sesame-open; a=b"]).masked("session sesame-open b") == "session *** b"


def test_a_document_stays_json_where_a_credential_meets_an_escape() -> None:
    of_digits = Credentials(["nabc-123456", "7654321"])
    text = '{"a": "\\nabc-123456", "b": 7654321, "7654321": [true, null, 1.5]}'
    assert json.loads(of_digits.masked(text)) == {"a": "\nabc-123456", "b": "***", "***": [True, None, 1.5]}


def test_a_document_without_it_is_the_same_text() -> None:
    text = '{"a" : "\\u0062", "a": 1e400}'
    assert PLAIN.masked(text) == text


def test_the_places_of_a_document_are_named() -> None:
    document = {"a/b": ["x", {"c": "sesame-open-1234567!"}], "n": 1}
    assert PLAIN.without(document) == ({"a/b": ["x", {"c": "***!"}], "n": 1}, ["/a~1b/1/c"])


def test_below_a_hundred_levels_nothing_is_shown() -> None:
    deep: Any = "sesame-open-1234567"
    for _ in range(200):
        deep = [deep]
    masked, places = PLAIN.without(deep)
    assert places == ["/0" * 101]
    assert "sesame" not in json.dumps(masked)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("got sesame-open-12345", "got ***"),
        ("got sesa", "got ***"),
        ("got sesame%2dopen%2", "got ***"),
        ("got sesame\\u00", "got ***"),
        ("got sesame&#4", "got ***"),
        ("got ses", "got ses"),
        ("sesame and", "sesame and"),
        ("sesa, sesa", "sesa, ***"),
    ],
)
def test_at_the_end_of_a_cut_text_its_beginning_is_masked(text: str, shown: str) -> None:
    assert PLAIN.masked(text, is_cut=True) == shown
    assert PLAIN.masked(text) == text


def test_another_text_of_the_same_beginning_is_shown() -> None:
    text = "sesame%2dopen-123456 and sesame-open-123456x"
    assert PLAIN.masked(text) == text
    long = "sesame%2dopen-sesame-open-seven-and-more"
    assert Credentials([f"Bearer {'sesame-open-' * 4}"]).masked(long) == long


def test_a_short_value_is_not_taken_for_a_secret() -> None:
    assert Credentials(["a", "short"]).masked("a banana is short, 5%") == "a banana is short, 5%"


@pytest.mark.parametrize(
    "part",
    [
        "\\",
        "%25",
        "&amp;",
        "sesame-ope%",
        "sesame-open-123456%",
        "%73",
        "{",
        '"\\',
        "=3D",
        "=\n",
        "a\n",
        "\x00",
        "\\163",
    ],
)
def test_no_text_makes_the_search_slow(part: str) -> None:
    PLAIN.masked(part * (200_000 // len(part)), is_cut=True)


def test_a_credential_of_thousands_of_characters_is_found() -> None:
    token = "aB3/_-=." * 500
    assert Credentials([token]).masked(f"x {quote(token, safe='')} y") == "x *** y"


def test_a_document_is_not_walked_where_its_text_has_none() -> None:
    document = {"a": ["x"]}
    assert PLAIN.without(document, json.dumps(document))[0] is document
    assert Credentials([]).without(document)[0] is document
