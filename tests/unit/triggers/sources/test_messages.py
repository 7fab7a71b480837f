import base64
import json

import pytest

from durable_retry.services.queue import decoded

TEXT = json.dumps({"dependency": "payments", "request": {"method": "GET", "path": "/\u00e4"}})


def test_plain_json_is_taken_as_it_is() -> None:
    assert decoded(TEXT) == TEXT


@pytest.mark.parametrize("around", ["", "\n", " "])
def test_base64_of_json_is_undone(around: str) -> None:
    assert decoded(around + base64.b64encode(TEXT.encode()).decode() + around) == TEXT


@pytest.mark.parametrize("text", ["", "nope", "not base64!", "/////w==", "123", "\u00e4", "\x00"])
def test_anything_else_stays_as_it_is_for_the_dead_letter(text: str) -> None:
    assert decoded(text) == text
