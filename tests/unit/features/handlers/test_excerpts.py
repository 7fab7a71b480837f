from typing import Any

import pytest

from durable_retry.base.text import Secret
from durable_retry.features.handlers.excerpts import failure_traceback, refuse_credentials
from durable_retry.rules.config.dependency import Auth, Dependency
from tests.support.mistakes import pointers_of

PAYMENTS = Dependency(
    name="payments", base_url="https://x.example.com", auth=Auth("X-Api-Key", Secret("sesame-open"))
)
LIMIT = 100


def test_a_traceback_is_cut_between_its_entries() -> None:
    def fail(depth: int) -> None:
        if depth:
            fail(depth - 1)
        raise ValueError("sesame-open " * 800 + "password='x1' end")

    try:
        fail(30)
    except ValueError as error:
        text = failure_traceback(error, PAYMENTS)
    assert text.startswith("ValueError: *** ***")
    assert "sesame" not in text
    with pytest.raises(ValueError, match="x") as many:
        raise ValueError("x\n" * 6_000)
    assert failure_traceback(many.value, PAYMENTS).endswith("x\n" * 2_000)


@pytest.mark.parametrize("document", [{"a": ["x sesame-open"]}, "sesame%2dopen"])
def test_what_is_to_be_stored_with_a_credential_is_refused_at_its_place(document: Any) -> None:
    assert pointers_of(refuse_credentials, document, PAYMENTS, "/steps/one") == [
        "/steps/one/a/0" if isinstance(document, dict) else "/steps/one"
    ]
    refuse_credentials({"a": "***"}, PAYMENTS, "")
