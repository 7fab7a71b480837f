from typing import Any

from scripts.processes import eventually
from tests.support.onebox.process import OneboxProcess

WEBHOOK = "/runtime/webhooks/EventGrid"


def fire(onebox: OneboxProcess, function: str, **body: Any) -> None:
    assert onebox.client.post(f"/admin/functions/{function}", json=body).status_code == 202


def until_seen(onebox: OneboxProcess, *wanted: dict[str, Any]) -> None:
    def look() -> bool:
        seen = onebox.client.get("/api/events").json()
        return all(each in seen for each in wanted)

    eventually(look, f"{wanted} are seen")


def test_a_service_bus_message_can_be_fired_with_an_id_of_its_own(onebox: OneboxProcess) -> None:
    fire(onebox, "on_service_bus", input="an order", metadata={"MessageId": "m-1"})
    until_seen(onebox, {"from": "bus", "body": "an order", "id": "m-1", "count": 1})


def test_a_batch_of_event_hub_events_can_be_fired(onebox: OneboxProcess) -> None:
    fire(onebox, "on_event_hub", input=["first", {"second": 2}])
    first = {"from": "hub", "body": "first", "number": 0}
    until_seen(onebox, first, {"from": "hub", "body": '{"second": 2}', "number": 1})


def test_a_batch_of_kafka_events_can_be_fired(onebox: OneboxProcess) -> None:
    fire(onebox, "on_kafka", input=["one", "two"])
    one = {"from": "news", "body": "one", "offset": 0}
    until_seen(onebox, one, {"from": "news", "body": "two", "offset": 1})


def test_a_change_feed_can_be_fired(onebox: OneboxProcess) -> None:
    fire(onebox, "on_cosmos", input=[{"id": "d-1"}, {"id": "d-2"}])
    until_seen(onebox, {"from": "cosmos", "id": "d-1"}, {"from": "cosmos", "id": "d-2"})


def test_event_grid_events_arrive_through_the_webhook(onebox: OneboxProcess) -> None:
    event = {"id": "g-1", "eventType": "made", "subject": "s", "data": {}, "dataVersion": "1"}
    url = f"{WEBHOOK}?functionName=on_event_grid"
    answer = onebox.client.post(url, json=[event], headers={"aeg-event-type": "Notification"})
    assert answer.status_code == 202
    until_seen(onebox, {"from": "grid", "id": "g-1", "type": "made"})
    assert onebox.client.post(url, json=[{**event, "subject": "fail"}]).status_code == 500


def test_a_cloud_event_arrives_through_the_webhook(onebox: OneboxProcess) -> None:
    event = {"specversion": "1.0", "id": "c-1", "source": "/shop", "type": "made"}
    url = f"{WEBHOOK}?functionName=on_cloud_event"
    answer = onebox.client.post(url, json=event, headers={"Content-Type": "application/cloudevents+json"})
    assert answer.status_code == 202
    until_seen(onebox, {"from": "/shop", "id": "c-1"})


def test_both_handshakes_are_answered(onebox: OneboxProcess) -> None:
    url = f"{WEBHOOK}?functionName=on_event_grid"
    validation = [{"data": {"validationCode": "abc"}}]
    headers = {"aeg-event-type": "SubscriptionValidation"}
    assert onebox.client.post(url, json=validation, headers=headers).json() == {"validationResponse": "abc"}
    assert onebox.client.post(url, json=[{}], headers=headers).status_code == 400
    options = onebox.client.options(url, headers={"WebHook-Request-Origin": "eventgrid.azure.net"})
    assert options.headers["webhook-allowed-origin"] == "eventgrid.azure.net"
    assert onebox.client.post(f"{WEBHOOK}?functionName=none", json=[]).status_code == 404
    assert onebox.client.post(url, content="{").status_code == 400
