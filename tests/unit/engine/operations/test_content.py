from typing import Any

import pytest

from durable_retry.engine.operations.content import content_of, missing_credentials, without_credentials
from tests.support.builders import an_operation

REQUEST: dict[str, Any] = {
    "method": "GET",
    "path": "/",
    "query": {},
    "headers": {"X-Api-Key": "c2VjcmV0", "Accept": "text/plain"},
}
MASKED = {**REQUEST, "headers": {"X-Api-Key": "***", "Accept": "text/plain"}}


def test_the_content_of_a_call_is_its_request_without_credentials() -> None:
    assert content_of(an_operation(request=REQUEST).to_json()) == {"request": MASKED}


@pytest.mark.parametrize("given", [{"id": 1}, None])
def test_the_content_of_a_handlers_operation_is_its_input(given: Any) -> None:
    operation = an_operation(handler="ship", request=None, input=given).to_json()
    assert content_of(operation) == {"handler": "ship", "input": given}
    assert without_credentials(operation) == operation


def test_a_masked_credential_is_missing_and_any_other_header_is_not() -> None:
    (problem,) = missing_credentials(MASKED)
    assert problem.pointer == "/request/headers/X-Api-Key"
    assert list(missing_credentials(REQUEST)) == []
    assert list(missing_credentials(None)) == []
