import re

from playwright.sync_api import Browser, expect

from tests.support.app import System
from tests.support.browser import Window


def test_times_are_shown_and_typed_in_one_zone_that_a_switch_changes(browser: Browser, seen: System) -> None:
    with Window(browser, seen.url, timezone_id="Asia/Tokyo", locale="en-GB") as window:
        after = "operations?created_after=2020-05-05T10:15:00.000Z"
        window.open(after)
        field = window.page.get_by_label(re.compile(r"^Accepted after"))
        row = window.page.locator("tbody time[data-tick=ago]").first
        switch = window.page.locator("#zone-button")
        expect(switch).to_have_text("Times: local, UTC+9")
        expect(window.page.get_by_label("Accepted after (local)")).to_have_value("2020-05-05T19:15")
        expect(row).to_have_text(re.compile("ago|just now"))
        expect(row).to_have_attribute("title", re.compile(r"GMT\+9$"))
        field.fill("2020-05-06T09:00")
        expect(window.page).to_have_url(re.compile(r"created_after=2020-05-06T00%3A00%3A00"))
        switch.click()
        expect(switch).to_have_text("Times: UTC")
        expect(window.page.get_by_label("Accepted after (UTC)")).to_have_value("2020-05-06T00:00")
        expect(row).to_have_attribute("title", re.compile(r"UTC$"))
        window.page.reload()
        expect(switch).to_have_text("Times: UTC")


def test_every_view_has_absolute_and_relative_times(browser: Browser, seen: System) -> None:
    """What a row shows as an age says when it was, and what it shows as an instant says how long ago."""
    with Window(browser, seen.url, timezone_id="Asia/Tokyo", locale="en-GB") as window:
        window.open("operations?key=fine")
        window.page.get_by_role("link", name="fine", exact=True).click()
        accepted = window.card("About").locator("dd").filter(has_text="ago").first
        expect(accepted).to_have_text(re.compile(r"^\d\d:\d\d:\d\d · .* ago$"))
        for view in (
            "dead-letters",
            "outbox?status=sent",
            "circuits/patient",
            "activity",
            "batches",
            "find?q=fine",
        ):
            window.open(view)
            for title in window.page.locator("main time").evaluate_all("all => all.map(one => one.title)"):
                assert re.search(r"GMT\+9$", title), (view, title)
