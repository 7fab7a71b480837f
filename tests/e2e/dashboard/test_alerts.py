from playwright.sync_api import expect

from scripts.processes import eventually
from tests.support.app import System
from tests.support.browser import Window


def test_an_alert_is_shown_with_whom_it_was_sent_to(window: Window, seen: System) -> None:
    def is_sent() -> bool:
        seen.client.post("/admin/functions/watch", json={}).raise_for_status()
        items = seen.client.get("/api/alerts").json()["items"]
        return any(message["state"] == "sent" for one in items for message in one["deliveries"])

    eventually(is_sent, "an alert is sent")
    window.open()
    expect(window.card("Alerts")).to_contain_text("Open dead letters")
    window.open("alerts")
    raised = window.card("Raised now")
    expect(raised).to_contain_text("Open dead letters")
    expect(raised).to_contain_text("Slack")
    expect(raised.locator(".badge").first).to_have_text("Sent")


def test_receivers_are_tried_from_the_page(window: Window) -> None:
    window.open("alerts")
    window.button("Send a test").click()
    expect(window.page.locator(".toast")).to_have_text("The test arrived everywhere.")
