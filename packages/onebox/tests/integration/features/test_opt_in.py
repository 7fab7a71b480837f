"""What an app opts in to: large payloads in blobs, schedules, history export."""

from typing import Any

import httpx

from scripts.processes import eventually
from tests.support.onebox.process import INSTANCES, OneboxProcess

TEXT = "payload " * 10_000


def texts(features: OneboxProcess, instance_id: str) -> dict[str, Any]:
    document: dict[str, Any] = features.client.get(f"/api/payloads/{instance_id}").json()
    return document


def test_large_payloads_travel_as_blobs_and_arrive_whole(features: OneboxProcess) -> None:
    features.start_orchestration("carries", "large", TEXT)
    answer = features.client.post("/api/payloads/large/event", content=TEXT)
    assert answer.status_code == 202

    def ended() -> dict[str, Any] | None:
        document = texts(features, "large")
        return None if document["status"] in {"PENDING", "RUNNING"} else document

    found = eventually(ended, "it ends")
    assert (found["status"], found["output"]) == ("COMPLETED", {"all_equal": True}), found["error"]
    assert (found["input"], found["custom"]) == (len(TEXT), len(TEXT))
    stored = features.instance("large", showHistory="true", showHistoryOutput="true")
    assert "blob:v1:payloads:" in str(stored["input"])
    assert TEXT not in str(stored), "the task hub holds references only"


def test_a_schedule_starts_instances_until_it_is_deleted(features: OneboxProcess) -> None:
    answer = features.client.post("/api/schedules/often", params={"orchestration": "stamps"}, json="often")
    assert answer.status_code == 201

    def runs() -> int:
        listed = features.client.get(INSTANCES, params={"runtimeStatus": "Completed"}).json()
        return sum(each["name"] == "stamps" and each["input"] == "often" for each in listed)

    eventually(lambda: runs() >= 2, "it has run twice")
    features.client.post("/api/schedules/often/pause")
    assert features.client.get("/api/schedules/often").text == "PAUSED"
    features.client.post("/api/schedules/often/resume")
    assert features.client.get("/api/schedules/often").text == "ACTIVE"
    features.client.post("/api/schedules/often/delete")
    assert features.client.get("/api/schedules/often").status_code == 404


def test_the_histories_of_ended_instances_are_exported(features: OneboxProcess) -> None:
    features.start_orchestration("stamps", "exported", "x")
    features.until("exported", "Completed")
    assert features.client.post("/api/exports/nightly").status_code == 202

    def ended() -> dict[str, Any] | None:
        answer = features.client.get("/api/exports/nightly")
        if answer.status_code == httpx.codes.NOT_FOUND:  # the job is an entity, made by a signal
            return None
        job: dict[str, Any] = answer.json()
        return job if job["status"] in {"COMPLETED", "FAILED"} else None

    job = eventually(ended, "the export ends")
    assert (job["status"], job["error"]) == ("COMPLETED", None)
    files = list((features.data.parent / "nightly").rglob("*"))
    histories = [each.read_text() for each in files if each.is_file()]
    assert len(histories) == job["exported"] >= 1
    assert any('"exported"' in history for history in histories)
