"""Alerts in a browser: raised, sent, silenced with a reason, and the silence ended."""

from playwright.sync_api import expect

from scripts.processes import eventually
from tests.support.app import System
from tests.support.browser import Window


def test_an_alert_is_silenced_with_a_reason_and_the_silence_is_ended(window: Window, seen: System) -> None:
    def is_sent() -> bool:
        seen.client.post("/admin/functions/watch", json={}).raise_for_status()
        items = seen.client.get("/api/alerts").json()["items"]
        return any(message["state"] == "sent" for one in items for message in one["deliveries"])

    eventually(is_sent, "an alert is sent")
    window.open()
    window.card("Alerts").get_by_role("button", name="Silence…").first.click()
    expect(window.dialog()).to_contain_text("Silence alerts")
    window.page.keyboard.press("Escape")
    window.open("alerts")
    raised = window.card("Raised now")
    expect(raised.locator(".badge").first).to_have_text("Firing")
    expect(raised).to_contain_text("Open dead letters")
    raised.get_by_role("button", name="Silence…").last.click()
    dialog = window.dialog()
    dialog.get_by_label("For").select_option("15")
    dialog.get_by_label("Reason").fill("a deployment")
    dialog.get_by_role("button", name="Silence", exact=True).click()
    expect(window.card("Silences")).to_contain_text("a deployment")
    expect(raised.locator(".badge").first).to_have_text("Silenced")
    (silence,) = seen.client.get("/api/alerts").json()["silences"]
    assert (silence["condition"], silence["by"]) == ("dead_letters", "api")
    window.button("End it").click()
    expect(raised.locator(".badge").first).to_have_text("Firing")
    assert seen.client.get("/api/alerts").json()["silences"] == []


def test_receivers_are_tried_from_the_page(window: Window) -> None:
    window.open("alerts")
    window.button("Send a test").click()
    expect(window.page.locator(".toast")).to_have_text("The test arrived everywhere.")


def test_bad_silences_are_refused_with_what_to_write(seen: System) -> None:
    body = {"condition": "dead_leters", "for_minutes": 0, "reason": " "}
    answer = seen.client.post("/api/alerts/silences", json=body)
    assert answer.status_code == 400
    assert {error["pointer"] for error in answer.json()["errors"]} == {
        "/condition",
        "/for_minutes",
        "/reason",
    }
    assert seen.client.delete("/api/alerts/silences/silence-none").status_code == 404
