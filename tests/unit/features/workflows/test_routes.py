import threading
from typing import Any

import azure.functions as func
import pytest

from durable_retry.base.trace_context import TraceContext
from durable_retry.features.workflows import routes as workflows
from durable_retry.http.routes import read_body


@pytest.mark.parametrize(("kibibytes", "is_apart"), [(1, "no"), (257, "yes")])
async def test_a_large_body_is_read_beside_the_event_loop(
    kibibytes: int, is_apart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def reading(*args: Any, **options: Any) -> Any:
        threads.append(threading.get_ident())
        return read_body(*args, **options)

    monkeypatch.setattr(workflows, "read_body", reading)
    body = b'"' + b"x" * (1024 * kibibytes) + b'"'
    request = func.HttpRequest(method="POST", url="/api/batches", body=body)
    assert await workflows._read_document(request) == "x" * (1024 * kibibytes)
    assert ["no" if ident == threading.get_ident() else "yes" for ident in threads] == [is_apart]


def test_a_batch_has_its_callers_place() -> None:
    caller = TraceContext(f"00-{'a' * 32}-{'a' * 16}-01", "vendor=a")
    headers = {**caller.to_json(), "Idempotency-Key": "b-1"}
    request = func.HttpRequest(method="POST", url="/api/batches", headers=headers, body=b"[]")
    assert workflows.workflow_of(request, "batch", []).trace == caller
