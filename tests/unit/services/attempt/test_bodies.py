import codecs

import pytest

from durable_retry.services.attempt.bodies import body_text

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
        (b"\xff\x00\xff", f"{JSON}; charset=hex", None),
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


def test_a_character_that_was_cut_is_left_out() -> None:
    cut = "aé".encode()[:-1]
    assert body_text(cut, "", is_cut=True) == "a"
    assert body_text(cut, "") is None
