import json
from typing import Any

from tests.support.onebox.process import OneboxProcess


def call(features: OneboxProcess, instance_id: str, **order: Any) -> dict[str, Any]:
    features.start_orchestration("calls", instance_id, order)
    output: dict[str, Any] = features.until(instance_id, "Completed")["output"]
    return output


def test_a_call_carries_its_body_and_headers(features: OneboxProcess) -> None:
    url = f"{features.url}/api/service/echo"
    answer = call(features, "call-echo", method="POST", url=url, content={"a": 1}, headers={"X-Thing": "yes"})
    assert answer["status"] == 201
    assert json.loads(answer["content"]) == {"body": {"a": 1}, "header": "yes"}


def test_an_error_of_the_service_is_an_answer(features: OneboxProcess) -> None:
    answer = call(features, "call-broken", method="GET", url=f"{features.url}/api/service/broken")
    assert answer == {"status": 503, "content": "out of order"}


def test_202_is_polled_at_its_location_until_it_is_done(features: OneboxProcess) -> None:
    answer = call(features, "call-job", method="POST", url=f"{features.url}/api/service/jobs/1")
    assert answer == {"status": 200, "content": "GET 3"}
