import re

from playwright.sync_api import expect

from tests.support.app import System, dead_letter
from tests.support.browser import Window


def test_a_blocked_lane_shows_its_queue_and_goes_on_when_the_dead_letter_is_archived(
    window: Window, seen: System, key: str
) -> None:
    letter = dead_letter(seen, f"{key}-a", order_key=key)
    waiting = []
    for name in "bc":
        waiting.append(seen.accepted(f"{key}-{name}", "/echo", order_key=key))
        seen.until(waiting[-1], "waiting_order")

    window.open(f"operations/{waiting[1]}")
    headline = window.page.locator(".headline")
    expect(headline).to_contain_text("waits for its turn in the lane of")
    timeline = window.card("Timeline")
    expect(timeline).to_contain_text(re.compile("aited .+ for a turn"))
    expect(timeline).to_contain_text(f"is in front, and ended as the dead letter {letter}")
    headline.locator(f"a[title='{key}']").click()

    expect(window.page.locator("h1")).to_have_text(key)
    expect(headline).to_contain_text("Blocked")
    expect(headline).to_contain_text("2 operations wait")
    front = window.card("In front")
    expect(front).to_contain_text("It ended as a dead letter")
    expect(front.locator(f"a[href$='{letter}']")).to_be_visible()
    links = window.page.get_by_role("table", name="Queue").locator("tbody a")
    assert [each.get_attribute("title") for each in links.all()] == waiting

    headline.get_by_role("link", name="All in this order").click()
    rows = window.page.get_by_role("table", name="Operations").locator("tbody tr")
    expect(rows).to_have_count(3)
    window.open(f"lanes/{key}")

    window.button("Archive").click()
    expect(headline).to_contain_text("No operation waits")
    for each in waiting:
        seen.until(each, "succeeded")


def test_a_blocked_lane_is_listed_and_goes_on_when_the_dead_letter_is_replayed(
    window: Window, seen: System, key: str
) -> None:
    dead_letter(seen, f"{key}-a", "/fail/2", order_key=key)  # as often as this dependency is tried
    behind = seen.accepted(f"{key}-b", "/echo", order_key=key)
    seen.until(behind, "waiting_order")
    window.open("lanes?blocked=true")
    row = window.page.get_by_role("table", name="Lanes").locator("tr").filter(has_text=key[-10:])
    expect(row).to_contain_text("Blocked")
    row.locator(f"a[title='{key}']").click()
    window.button("Replay").click()
    window.dialog().get_by_role("button", name="Replay").click()
    seen.until(behind, "succeeded")
    expect(window.page.locator(".headline")).to_contain_text("No operation waits")
