import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from durable_retry.base.signatures import signature
from durable_retry.base.text import Secret
from durable_retry.dead_letters.records import keep_operation, move_dead_letter
from durable_retry.features.dead_letter_lists.pages import count_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.rules.dead_letters.record import archived
from durable_retry.runtime import clock
from durable_retry_console.alerts import board, health, sending
from durable_retry_console.alerts import watch as alerts
from durable_retry_console.alerts.rules import Alert, Failure, HealthMetric, alert_changes
from durable_retry_console.alerts.sending import send_alert_to
from durable_retry_console.alerts.settings import AlertSettings, ReceiverName
from durable_retry_console.alerts.store import (
    KEPT_INCIDENTS,
    change_alert,
    known_alerts,
    list_incidents,
    remove_old_incidents,
    write_change,
)
from tests.support.builders import an_entry
from tests.support.hub import TaskHubStage
from tests.support.narrowing import existing

pytestmark = pytest.mark.usefixtures("own_tables")

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
KEY = bytes(range(32))
SECRET = Secret("whsec_" + base64.b64encode(KEY).decode())
MINUTE = timedelta(minutes=1)


class Inbox:
    """Takes what is posted, and answers a status by path."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Mapping[str, str], bytes]] = []
        self.statuses: dict[str, int] = {}
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                inbox.taken.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(inbox.statuses.get(self.path, 200))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def url(self, path: str) -> Secret:
        return Secret(f"http://127.0.0.1:{self.server.server_port}{path}")

    def bodies(self, path: str) -> list[Any]:
        return [json.loads(body) for taken, _, body in self.taken if taken == path]

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox()
    yield inbox
    inbox.stop()


@pytest.fixture(autouse=True)
def clock_at_now() -> Iterator[None]:
    with clock.reading(lambda: NOW):
        yield


def settle_on(
    monkeypatch: pytest.MonkeyPatch,
    *,
    webhook: Secret | None = None,
    slack: Secret | None = None,
    **thresholds: float,
) -> None:
    changed = {"dead_letters": 1, "dead_letter_age_seconds": 0, "outbox_lag_seconds": 0} | thresholds
    chosen = AlertSettings.model_validate(
        {f"alert_{name}": value for name, value in changed.items()}
        | {
            "alert_webhook_url": webhook,
            "alert_slack_url": slack,
            "alert_webhook_secret": (SECRET,),
            "website_hostname": "app.example.com",
        }
    )
    for module in (alerts, sending, board, health):
        monkeypatch.setattr(module, "alert_settings", lambda: chosen)


async def keep(number: int) -> str:
    return await keep_operation(
        an_entry(f"op-{number}", reason="RetriesExhausted"), NOW - timedelta(minutes=number)
    )


async def archive(dead_letter_id: str) -> None:
    await move_dead_letter(dead_letter_id, lambda record: archived(record, NOW))


async def test_each_receiver_gets_one_message_in_its_format_and_one_at_the_end(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    settle_on(monkeypatch, webhook=inbox.url("/hook"), slack=inbox.url("/slack"))
    first, _ = await keep(1), await keep(2)
    for minute in range(3):
        await alerts.check_alerts(hub.binding, NOW + minute * MINUTE)
    assert [body["state"] for body in inbox.bodies("/hook")] == ["raised"]
    (text,) = (body["text"] for body in inbox.bodies("/slack"))
    assert text.startswith("Raised: Open dead letters: 2, over the threshold of 1. <https://app.example.com/")
    await archive(first)
    for minute in range(3, 6):
        await alerts.check_alerts(hub.binding, NOW + minute * MINUTE)
    assert [body["state"] for body in inbox.bodies("/hook")] == ["raised", "cleared"]
    assert len({body["incident_id"] for body in inbox.bodies("/hook")}) == 1
    assert inbox.bodies("/slack")[1]["text"].startswith("Resolved: ")
    (incident,) = await list_incidents()
    assert (incident.state, incident.raised_at, incident.since) == ("cleared", NOW, NOW + 3 * MINUTE)
    (shown,) = (await board.read_board()).recent
    assert [(each.receiver, each.about, each.state, each.tries) for each in shown.deliveries] == [
        ("slack", "raised", "sent", 1),
        ("webhook", "raised", "sent", 1),
        ("slack", "cleared", "sent", 1),
        ("webhook", "cleared", "sent", 1),
    ]


async def test_a_webhook_is_signed_over_its_id_the_time_and_the_body(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    settle_on(monkeypatch, webhook=inbox.url("/hook"))
    await keep(1)
    await keep(2)
    await alerts.check_alerts(hub.binding, NOW)
    ((_, headers, body),) = inbox.taken
    assert headers["webhook-signature"] == signature(
        KEY,
        message_id=headers["webhook-id"],
        timestamp=int(headers["webhook-timestamp"]),
        body=body.decode(),
    )
    assert headers["webhook-id"] == json.loads(body)["id"]
    assert int(headers["webhook-timestamp"]) == int(NOW.timestamp())


async def test_two_workers_send_one_message(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    settle_on(monkeypatch, slack=inbox.url("/slack"))
    await keep(1)
    await keep(2)
    changes = await asyncio.gather(*(alerts.check_alerts(hub.binding, NOW) for _ in range(2)))
    assert sorted(len(each) for each in changes) == [0, 1]
    assert len(inbox.bodies("/slack")) == 1


async def test_a_failed_message_is_tried_again_and_a_refused_one_is_given_up(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    settle_on(monkeypatch, webhook=inbox.url("/hook"), slack=inbox.url("/slack"))
    inbox.statuses = {"/slack": 503, "/hook": 404}
    await keep(1)
    await keep(2)
    await alerts.check_alerts(hub.binding, NOW)
    inbox.statuses = {}
    await alerts.check_alerts(hub.binding, NOW + MINUTE)
    (alert,) = (await known_alerts()).values()
    assert (len(inbox.bodies("/slack")), len(inbox.bodies("/hook"))) == (2, 1)
    states = {name: (each.state, each.tries, each.detail) for name, each in alert.deliveries.items()}
    assert states == {
        "slack": ("sent", 2, None),
        "webhook": ("failed", 1, "it answered 404"),
    }


async def test_retries_exhausted_are_counted_within_the_last_hour(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, dead_letters=0, retries_exhausted_per_hour=1)
    for number in (1, 2, 61):
        await keep(number)
    look = await health.look_at_health(hub.binding, NOW)
    exhausted = look.metrics["retries_exhausted_per_hour"].value
    assert (await count_dead_letters(DeadLetterFilter()), exhausted) == (3, 2)
    settle_on(monkeypatch, retries_exhausted_per_hour=0)
    look = await health.look_at_health(hub.binding, NOW)
    assert look.metrics["retries_exhausted_per_hour"].value == 0


def raised(at: datetime, condition: str = "dead_letters") -> Alert:
    (alert,) = alert_changes({}, [HealthMetric(condition, 2, 1)], at)
    return alert


async def test_a_change_is_stored_by_the_first_worker_only() -> None:
    first = raised(NOW)
    assert await write_change(first, None)
    assert not await write_change(raised(NOW + MINUTE), None)
    (cleared,) = alert_changes({"dead_letters": first}, [], NOW + MINUTE)
    assert await write_change(cleared, first)
    assert not await write_change(cleared, first)
    assert not await change_alert("outbox_lag_seconds", lambda alert: alert)
    assert not await change_alert("dead_letters", lambda alert: alert)


async def test_old_incidents_go() -> None:
    last = None
    for number in range(KEPT_INCIDENTS // 2 + 2):
        one, two = raised(NOW + number * MINUTE), raised(NOW + number * MINUTE, "outbox_lag_seconds")
        for alert in (one, two):
            known = (await known_alerts()).get(alert.condition)
            assert await write_change(alert, known)
        last = two
    await remove_old_incidents()
    found = await list_incidents()
    assert len(found) == KEPT_INCIDENTS
    assert found[0].since == existing(last).since


@pytest.mark.shows("P13")
async def test_a_message_that_is_late_says_what_is_so_when_it_is_sent(
    hub: TaskHubStage, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, webhook=Secret("http://127.0.0.1:1/none"))
    for number in range(2):
        await keep(number)
    await alerts.check_alerts(hub.binding, NOW)
    (alert,) = (await known_alerts()).values()
    assert [(each.state, each.detail) for each in alert.deliveries.values()] == [("pending", "ConnectError")]
    settle_on(monkeypatch, webhook=inbox.url("/ours"))
    await keep(2)
    await alerts.check_alerts(hub.binding, NOW + MINUTE)
    (body,) = inbox.bodies("/ours")
    assert (body["value"], body["text"]) == (3, "Open dead letters: 3, over the threshold of 1.")
    assert body["page_url"] == "https://app.example.com/api/dashboard#/dead-letters"


async def test_a_test_goes_to_every_receiver_and_says_what_became_of_it(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.statuses["/broken"] = 500
    settle_on(monkeypatch, webhook=inbox.url("/ours"), slack=inbox.url("/broken"))
    tried = await board.try_receivers()
    assert [(each.receiver, each.state.value, each.detail) for each in tried.items] == [
        ("webhook", "sent", None),
        ("slack", "failed", "it answered 500"),
    ]
    assert "nothing is wrong" in inbox.bodies("/ours")[0]["text"]
    assert await known_alerts() == {}


@pytest.mark.shows("P14")
async def test_a_receiver_that_hangs_keeps_only_its_own_messages_waiting(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    """Its time of a run ends while it hangs in the first message; the next run begins with the others."""
    settle_on(
        monkeypatch,
        webhook=inbox.url("/hangs"),
        slack=inbox.url("/slack"),
        dead_letter_age_seconds=1,
        retries_exhausted_per_hour=1,
    )
    tried: list[str] = []
    real = send_alert_to

    async def send(alert: Alert, receiver: ReceiverName, now: datetime) -> Failure | None:
        if receiver == "webhook":
            tried.append(alert.condition)
            await asyncio.Event().wait()
        return await real(alert, receiver, now)

    monkeypatch.setattr(alerts, "send_alert_to", send)
    monkeypatch.setattr(alerts, "_RUN_SECONDS", 0.5)
    for number in range(2):
        await keep(number)
    raised = {alert.condition for alert in await alerts.check_alerts(hub.binding, NOW)}
    assert len(raised) == 3
    # On a busy machine a run's time may end before the first message is begun.
    for minute in range(1, 30):
        if set(tried) == raised and len(inbox.bodies("/slack")) >= len(raised):
            break
        await alerts.check_alerts(hub.binding, NOW + minute * MINUTE)
    assert set(tried) == raised
    assert len({body["text"] for body in inbox.bodies("/slack")}) == len(raised)
