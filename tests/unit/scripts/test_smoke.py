import json

import httpx
import pytest

from scripts import smoke


def test_a_dependency_that_answers_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "diagnose", lambda *_: None)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/health":
            return httpx.Response(200, json={"status": "healthy"})
        if request.method == "POST":
            is_whole = "key" in json.loads(request.content)
            return httpx.Response(202 if is_whole else 400, json={"operation_id": "op-1"})
        return httpx.Response(200, json={"status": "dead_lettered", "attempt_count": 1})

    client = httpx.Client(base_url="http://app", transport=httpx.MockTransport(answer))
    with client, pytest.raises(smoke.SmokeError, match="flaky answers: name another"):
        smoke.smoke(client, "flaky")
