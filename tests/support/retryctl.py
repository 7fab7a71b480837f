"""Runs of the command line against answers that a test makes up."""

import io
from collections.abc import Callable
from typing import Any

import httpx

from retryctl.cli import main

type Responder = Callable[[httpx.Request], httpx.Response]

STATUS = {
    "operation_id": "op-1",
    "key": "k",
    "dependency": "payments",
    "correlation_id": None,
    "status": "waiting_retry",
    "attempt_count": 1,
    "attempts": [
        {
            "number": 1,
            "started_at": "2026-11-21T09:00:00Z",
            "duration_ms": 41.2,
            "category": "transient",
            "status_code": 503,
            "error": "status 503",
            "next_delay_seconds": 1.37,
            "delay_reasons": ["exponential 2 s", "full jitter"],
        }
    ],
    "waits": [
        {
            "before_attempt": 2,
            "kind": "retry",
            "began_at": "2026-11-21T09:00:00.0412Z",
            "until": "2026-11-21T09:00:01.4112Z",
            "times": 1,
            "delay_reasons": ["payments answers 503, since 09:00 UTC", "exponential 2 s"],
        }
    ],
    "next_attempt_at": "2026-11-21T09:00:09Z",
    "deadline_at": None,
    "dead_letter": None,
    "events": [],
}
DEAD = STATUS | {
    "status": "dead_lettered",
    "next_attempt_at": None,
    "dead_letter": {"id": "dl-1", "category": "transient", "reason": "RetriesExhausted"},
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Run:
    """One run of the command line and what came of it."""

    def __init__(self, answer: Responder, *argv: str, out: io.StringIO | None = None, **environ: str) -> None:
        self.requests: list[httpx.Request] = []

        def note(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            return answer(request)

        out, err = out or io.StringIO(), io.StringIO()
        self.code = main(argv, environ=environ, out=out, err=err, transport=httpx.MockTransport(note))
        self.out, self.err = out.getvalue(), err.getvalue()


def answers(document: Any, status: int = 200) -> Responder:
    return lambda _: httpx.Response(status, json=document)


def refuses(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")
