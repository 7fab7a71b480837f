import json
from typing import Any

from scripts.processes import eventually
from tests.support.onebox.process import OneboxProcess


def runs(onebox: OneboxProcess, kind: str, at_least: int) -> list[dict[str, Any]]:
    def look() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = json.loads(onebox.client.get(f"/api/runs/{kind}").text)
        return found if len(found) >= at_least else None

    return eventually(look, f"{at_least} runs of {kind}")


def test_a_timer_fires_at_start_and_on_schedule(onebox: OneboxProcess) -> None:
    assert len(runs(onebox, "tick", 3)) >= 3
    onebox.until_logged(r"tick Succeeded in \d+ ms \(timer fired\)")


def test_a_failed_timer_run_is_retried_under_its_policy_with_its_context(onebox: OneboxProcess) -> None:
    assert onebox.client.post("/admin/functions/flaky_timer", json={}).status_code == 202
    first, second, third = runs(onebox, "flaky_timer", 3)
    assert (first["retry"], first["of"], first["error"]) == (0, 2, None)
    assert (second["retry"], third["retry"]) == (1, 2)
    assert third["error"] == "RuntimeError: run 1"
