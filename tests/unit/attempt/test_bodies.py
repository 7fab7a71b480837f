import codecs
from typing import Any

import pytest

from durable_retry.attempt.bodies import _CHARSETS, body_text

JSON = "application/json"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"", JSON, ""),
        ("é".encode(), JSON, "é"),
        ("é".encode(), f"{JSON}; charset=latin-1", "é"),
        ("é".encode("latin-1"), f"{JSON}; charset=ISO-8859-1", "é"),
        ("é".encode("latin-1"), f'{JSON}; a=b; Charset="latin-1"', "é"),
        ("é".encode("latin-1"), JSON, None),
        ("é".encode("latin-1"), f"{JSON}; charset=unheard-of", None),
        *(
            (b"\xff", f"{JSON}; charset={charset}", None)
            for charset in ("hex", "punycode", "charmap", "mbcs")
        ),
        (codecs.BOM_UTF8 + b"{}", JSON, "{}"),
        ("{}".encode("utf-16"), JSON, "{}"),
        ("{}".encode("utf-32"), JSON, "{}"),
        ("{}".encode("utf-16-le"), f"{JSON}; charset=utf-16le", "{}"),
        (
            "\u20ac".encode("shift_jis", "replace") + "日".encode("shift_jis"),
            f"{JSON}; charset=shift_jis",
            "?日",
        ),
        (b"a\0b", JSON, "a\0b"),
        (b"\xff\xfe\x00\xd8", JSON, None),
    ],
)
def test_utf_8_first_then_what_is_declared_and_no_guess(
    body: bytes, content_type: str, text: str | None
) -> None:
    assert body_text(body, content_type) == text


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "utf-7", "unicode_escape", "raw-unicode-escape", "zlib", "made-up-7"]
)
def test_no_codec_is_looked_for_that_is_none_of_the_web(
    charset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    decoder = codecs.getincrementaldecoder

    def decoder_of(name: str) -> Any:
        seen.append(name)
        return decoder(name)

    monkeypatch.setattr(codecs, "getincrementaldecoder", decoder_of)
    assert body_text(b"caf\xe9", f"{JSON}; charset={charset}") is None
    assert set(seen) == {"utf-8"}


@pytest.mark.parametrize(
    "charset",
    [
        *("utf8", "UTF-16LE", "latin1", "ISO_8859-15", "windows-1252", "cp1250", "koi8-r", "gb18030", "GBK"),
        *("big5", "euc-kr", "EUC-JP", "iso-2022-jp", "Shift_JIS", "us-ascii", "mac-roman", "ibm866", "cp949"),
    ],
)
def test_the_charsets_of_the_web_are_read(charset: str) -> None:
    assert body_text("text".encode(charset), f"a/b; charset={charset}") == "text"
    assert _CHARSETS.fullmatch(charset.lower().replace("_", "-"))


def test_a_character_that_was_cut_is_left_out() -> None:
    cut = "aé".encode()[:-1]
    assert body_text(cut, "", is_cut=True) == "a"
    assert body_text(cut, "") is None
