"""Alerts to receivers over HTTP, with the state in real tables."""

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from durable_retry import clock
from durable_retry.engine.base.text import Secret
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import archived
from durable_retry.engine.outbox import signature
from durable_retry.settings.alerts import AlertSettings, Format, Receiver
from durable_retry.stores.dead_letters.list import count_dead_letters
from durable_retry.stores.dead_letters.records import keep_operation, move_dead_letter
from durable_retry.stores.task_hub import TaskHub
from durable_retry_console.alerts import board, sending
from durable_retry_console.alerts import watch as alerts
from durable_retry_console.alerts.rules import Alert, Failure, HealthMetric, Silence, alert_changes
from durable_retry_console.alerts.sending import Target, send_alert_to
from durable_retry_console.alerts.store import (
    KEPT_INCIDENTS,
    change_alert,
    delete_silence,
    known_alerts,
    list_incidents,
    list_silences,
    remove_ended_silences,
    remove_old_incidents,
    write_change,
    write_silence,
)
from tests.support.builders import an_entry
from tests.support.hub import TaskHubStage

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

    def receiver(self, format_: Format, path: str) -> Receiver:
        return Receiver(format_, Secret(f"http://127.0.0.1:{self.server.server_port}{path}"))

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


def settle_on(monkeypatch: pytest.MonkeyPatch, *receivers: Receiver, **thresholds: float) -> None:
    changed = {"dead_letters": 1, "dead_letter_age_seconds": 0, "outbox_lag_seconds": 0} | thresholds
    chosen = AlertSettings.model_validate(
        {f"alert_{name}": value for name, value in changed.items()}
        | {
            "alert_webhook_url": receivers,
            "alert_webhook_secret": (SECRET,),
            "website_hostname": "app.example.com",
        }
    )
    for module in (alerts, sending, board):
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
    settle_on(
        monkeypatch,
        inbox.receiver(Format.WEBHOOK, "/hook"),
        inbox.receiver(Format.SLACK, "/slack"),
        inbox.receiver(Format.TEAMS, "/teams"),
    )
    noted: list[Alert] = []
    monkeypatch.setattr(alerts, "note_alert", noted.append)
    first, _ = await keep(1), await keep(2)
    for minute in range(3):
        await alerts.check_alerts(hub.binding, NOW + minute * MINUTE)
    assert [body["state"] for body in inbox.bodies("/hook")] == ["raised"]
    assert [body["text"] for body in inbox.bodies("/slack")] == [
        "Raised: Open dead letters: 2, over the threshold of 1."
    ]
    assert len(inbox.bodies("/teams")) == 1
    await archive(first)
    for minute in range(3, 6):
        await alerts.check_alerts(hub.binding, NOW + minute * MINUTE)
    assert [body["state"] for body in inbox.bodies("/hook")] == ["raised", "cleared"]
    assert len({body["incident_id"] for body in inbox.bodies("/hook")}) == 1
    assert inbox.bodies("/slack")[1]["text"].startswith("Resolved: ")
    assert len(inbox.bodies("/teams")) == 2
    (incident,) = await list_incidents()
    assert (incident.state, incident.raised_at, incident.since) == ("cleared", NOW, NOW + 3 * MINUTE)
    assert [alert.state for alert in noted] == ["raised", "cleared"]  # the activity has both


async def test_a_webhook_is_signed_over_its_id_the_time_and_the_body(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    settle_on(monkeypatch, inbox.receiver(Format.WEBHOOK, "/hook"))
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
    settle_on(monkeypatch, inbox.receiver(Format.SLACK, "/slack"))
    await keep(1)
    await keep(2)
    changes = await asyncio.gather(*(alerts.check_alerts(hub.binding, NOW) for _ in range(2)))
    assert sorted(len(each) for each in changes) == [0, 1]
    assert len(inbox.bodies("/slack")) == 1


async def test_a_failed_message_is_tried_again_and_a_refused_one_is_given_up(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    slack, teams = inbox.receiver(Format.SLACK, "/slack"), inbox.receiver(Format.TEAMS, "/teams")
    away = Receiver(Format.SLACK, Secret("http://127.0.0.1:1/none"))
    settle_on(monkeypatch, slack, teams, away)
    inbox.statuses = {"/slack": 503, "/teams": 404}
    await keep(1)
    await keep(2)
    await alerts.check_alerts(hub.binding, NOW)
    inbox.statuses = {}
    await alerts.check_alerts(hub.binding, NOW + MINUTE)
    (alert,) = (await known_alerts()).values()
    assert (len(inbox.bodies("/slack")), len(inbox.bodies("/teams"))) == (2, 1)
    states = {name: (each.state, each.tries, each.detail) for name, each in alert.deliveries.items()}
    assert states == {
        slack.name: ("sent", 2, None),
        teams.name: ("failed", 1, "it answered 404"),
        away.name: ("pending", 2, "ConnectError"),
    }


async def test_a_silence_keeps_a_message_back_until_it_ends(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    settle_on(monkeypatch, inbox.receiver(Format.SLACK, "/slack"))
    await keep(1)
    await keep(2)
    silence = Silence(
        id="silence-1",
        condition="dead_letters",
        reason="deploy",
        by="ada",
        created_at=NOW,
        until=NOW + 2 * MINUTE,
    )
    await write_silence(silence)
    await alerts.check_alerts(hub.binding, NOW + MINUTE)
    assert inbox.taken == []
    assert await list_silences(NOW + MINUTE) == [silence]
    await alerts.check_alerts(hub.binding, NOW + 2 * MINUTE)
    assert len(inbox.taken) == 1
    assert await list_silences(NOW) == []


async def test_a_silence_of_one_receiver_leaves_the_message_to_the_other(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    ada, ben = (inbox.receiver(Format.SLACK, path) for path in ("/ada", "/ben"))
    settle_on(monkeypatch, ada, ben)
    monkeypatch.setattr(clock, "now", lambda: NOW)
    for number in range(2):
        await keep(number)
    until = NOW + 2 * MINUTE
    await board.begin_silence("dead_letters", until, receiver=ada.name, reason="on leave", by="ada")
    await alerts.check_alerts(hub.binding, NOW)
    assert (len(inbox.bodies("/ada")), len(inbox.bodies("/ben"))) == (0, 1)
    await alerts.check_alerts(hub.binding, until)
    assert (len(inbox.bodies("/ada")), len(inbox.bodies("/ben"))) == (1, 1)
    with pytest.raises(InvalidInputError, match="receiver"):
        await board.begin_silence("*", until, receiver="nobody", reason="r", by="ada")


async def test_retries_exhausted_are_counted_within_the_last_hour(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, dead_letters=0, retries_exhausted_per_hour=1)
    for number in (1, 2, 61):
        await keep(number)
    metrics = await alerts.read_health_metrics(hub.binding, NOW)
    reason = (await count_dead_letters(DeadLetterFilter()), metrics.retries_exhausted)
    assert reason == (3, 2)
    settle_on(monkeypatch, retries_exhausted_per_hour=0)
    assert (await alerts.read_health_metrics(hub.binding, NOW)).retries_exhausted == 0


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


async def test_old_incidents_and_ended_silences_go() -> None:
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
    assert last is not None
    assert found[0].since == last.since
    await remove_ended_silences(NOW)
    await delete_silence("silence-none")


async def test_a_message_that_was_kept_back_says_what_is_so_when_it_is_sent(
    hub: TaskHubStage, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, inbox.receiver(Format.WEBHOOK, "/ours"))
    for number in range(2):
        await keep(number)
    until = NOW + MINUTE
    await write_silence(
        Silence(id=f"silence-{'0' * 32}", condition="*", reason="r", by="ada", created_at=NOW, until=until)
    )
    await alerts.check_alerts(hub.binding, NOW)
    assert inbox.bodies("/ours") == []
    await keep(2)
    await alerts.check_alerts(hub.binding, until)
    (body,) = inbox.bodies("/ours")
    assert (body["value"], body["text"]) == (3, "Open dead letters: 3, over the threshold of 1.")
    assert body["page_url"] == "https://app.example.com/api/dashboard#/dead-letters"


async def test_a_test_goes_to_every_receiver_and_says_what_became_of_it(
    hub: TaskHubStage, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, broken = (inbox.receiver(Format.SLACK, path) for path in ("/ours", "/broken"))
    inbox.statuses["/broken"] = 500
    settle_on(monkeypatch, ours, broken)
    tried = await board.try_receivers(hub.binding)
    assert [(each.receiver, each.state.value, each.detail) for each in tried.items] == [
        (ours.name, "sent", None),
        (broken.name, "failed", "it answered 500"),
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
        inbox.receiver(Format.WEBHOOK, "/hangs"),
        inbox.receiver(Format.SLACK, "/slack"),
        dead_letter_age_seconds=1,
        retries_exhausted_per_hour=1,
    )
    tried: list[str] = []
    real = send_alert_to

    async def send(binding: TaskHub, alert: Alert, target: Target, now: datetime) -> Failure | None:
        if isinstance(target, Receiver) and target.format is Format.WEBHOOK:
            tried.append(alert.condition)
            await asyncio.Event().wait()
        return await real(binding, alert, target, now)

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
