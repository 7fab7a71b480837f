import re
from functools import partial

from playwright.sync_api import expect

from scripts.processes import eventually
from tests.support.app import System
from tests.support.browser import Window


def test_failures_show_in_charts_table_and_overview(window: Window, seen: System, key: str) -> None:
    seen.until(seen.accepted(f"{key}-fails", "/fail/9"), "dead_lettered")
    window.open("metrics?dependency=flaky&minutes=15")
    attempts = window.card("Attempts").get_by_role("img")
    expect(attempts).to_have_accessible_name(re.compile(r"attempts in steps of 1 min, at most \d+"))
    expect(window.card("Failed attempts by category")).to_contain_text("Transient")
    for card in ("Time of an attempt", "Critical time", "Lateness"):
        expect(window.card(card).locator("path.trace")).to_have_count(2)
    window.page.get_by_text("The charts as a table").click()
    row = window.page.get_by_role("table", name="Metrics by time").locator("tbody tr").last
    expect(row).to_contain_text(re.compile(r"\d"))
    window.page.get_by_label("Dependency", exact=True).select_option("patient")
    expect(window.page).to_have_url(re.compile("dependency=patient"))
    window.page.get_by_label("Dependency", exact=True).select_option("")
    by_dependency = window.card("By dependency").get_by_role("link", name="flaky")
    by_dependency.click()
    expect(window.page).to_have_url(re.compile("dependency=flaky"))
    window.open()
    expect(window.page.locator(".figures")).to_contain_text("p95 of attempts")
    window.page.locator(".figures").get_by_text("operations ended per").click()
    expect(window.page.locator("h1")).to_have_text("Metrics")


def test_the_page_of_a_circuit_shows_the_last_hour_of_its_dependency(window: Window, seen: System) -> None:
    assert seen.client.get("/api/metrics?dependency=flaky").json()["total"]["attempts"]
    window.open("circuits/flaky")
    attempts = window.card("Attempts").get_by_role("img")
    expect(attempts).to_have_accessible_name(re.compile(r"attempts in steps of 1 min, at most \d+"))
    window.open("circuits/limited")
    expect(window.card("Last hour")).to_contain_text("Nothing was attempted.")


def test_a_chart_says_its_values_to_the_pointer_and_to_the_keyboard(window: Window, seen: System) -> None:
    assert seen.client.get("/api/metrics").json()["total"]["attempts"]
    window.open("metrics?minutes=15")
    plot = window.card("Attempts").locator(".plot")
    tip = plot.locator(".tip")
    expect(tip).to_be_hidden()
    plot.hover()
    expect(tip).to_have_text(re.compile(r"\d\d:\d\d.\d\d:\d\dfailed\d+succeeded\d+"))
    expect(window.card("Time of an attempt").locator(".cross")).to_be_visible()  # all show the same step
    window.page.locator("h1").hover()
    expect(tip).to_be_hidden()
    plot.focus()
    window.page.keyboard.press("End")
    window.page.keyboard.press("ArrowLeft")
    expect(tip).to_be_visible()
    expect(window.page.locator("#announcer")).to_have_text(
        re.compile(r"\d\d:\d\d .*failed \d+, succeeded \d+")
    )
    window.page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_a_span_of_a_chart_is_looked_at_closer_and_left_again(window: Window, seen: System) -> None:
    assert seen.client.get("/api/metrics").json()["total"]["attempts"]
    window.open("metrics?minutes=15&dependency=flaky")
    plot = window.card("Attempts").locator(".plot")
    box = plot.bounding_box()
    assert box is not None
    window.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 20)
    window.page.mouse.down()
    window.page.mouse.move(box["x"] + 0.98 * box["width"], box["y"] + 20, steps=4)
    expect(plot.locator(".brush")).to_be_visible()
    window.page.mouse.up()
    expect(window.page).to_have_url(re.compile(r"metrics\?dependency=flaky&from=.*&to="))
    expect(window.page.get_by_label("Time", exact=True)).to_have_value("")
    expect(window.page.get_by_label(re.compile("^From"))).not_to_have_value("")
    window.page.get_by_label("Time", exact=True).select_option("15")
    expect(window.page).to_have_url(re.compile(r"dependency=flaky&minutes=15$"))
    plot.focus()
    window.page.keyboard.press("End")
    window.page.keyboard.press("Shift+ArrowLeft")
    window.page.keyboard.press("Shift+ArrowLeft")
    window.page.keyboard.press("Enter")
    expect(window.page).to_have_url(re.compile("from="))
    window.open("metrics?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z")
    expect(window.page.get_by_role("status")).to_contain_text("/from: must be a minute to seven days")


def _is_in(seen: System, state: str) -> bool:
    return bool(seen.client.get("/api/circuits/switched").json()["state"] == state)


def test_what_happened_is_marked_in_the_charts(window: Window, seen: System, key: str) -> None:
    seen.until(seen.accepted(f"{key}-fails", "/fail/9"), "dead_lettered")
    for action, state in (("open", "forced_open"), ("close", "closed")):
        seen.client.post(f"/api/circuits/switched/{action}", json={"reason": "a look"}).raise_for_status()
        # Two changes that arrive together are one instant, and an outage that lasts no time has no bar.
        eventually(partial(_is_in, seen, state), f"the circuit is {state}")
    bulk = {"action": "archive", "filter": {"group": "none"}}
    seen.client.post("/api/bulk-actions", json=bulk).raise_for_status()
    outages = eventually(
        lambda: seen.client.get("/api/activity?kind=circuit&dependency=switched").json()["items"],
        "the outage is noted",
    )
    deployed = outages[0] | {"kind": "deployment", "what": "other code was deployed", "who": None}
    window.page.route(
        re.compile("kind=deployment"),
        lambda route: route.fulfill(json={"items": [deployed], "next_cursor": None}),
    )
    window.open("metrics?minutes=15")
    attempts = window.card("Attempts")
    expect(attempts.locator(".mark.is-bulk")).not_to_have_count(0)
    expect(attempts.locator(".mark.is-deployment")).to_have_count(1)
    expect(attempts.get_by_role("img")).to_have_accessible_name(re.compile("deployment: 1"))
    row = window.card("Circuit over time").get_by_role("img", name=re.compile("^switched"))
    expect(row).to_have_accessible_name(re.compile("the circuit was open"))


def test_what_was_used_of_limits_is_charted_beside_them(window: Window, seen: System, key: str) -> None:
    seen.until(seen.accepted(f"{key}-limited", "/echo", dependency="limited"), "succeeded")
    window.open("metrics?minutes=15&dependency=limited")
    for unit in ("at once", "per second"):
        card = window.card(f"Attempts {unit}, and their limit")
        chart = card.get_by_role("img", name=re.compile(f"^attempts {unit} in steps of 1 min, at most"))
        expect(chart.locator("path.is-waiting_retry")).to_have_count(1)
        card.locator(".plot").focus()
        window.page.keyboard.press("End")
        expect(card.locator(".tip")).to_contain_text(re.compile(r"\d"))
    window.open("metrics?minutes=15&dependency=switched")
    expect(window.page.locator("main .empty, .charts").first).to_be_visible()
    expect(window.page.get_by_text("and their limit")).to_have_count(0)


def test_a_time_without_operations_says_so(window: Window) -> None:
    empty = "dependency=switched&from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z"
    window.page.route(
        "**/api/metrics?**", lambda route: route.continue_(url=f"{window.url}/api/metrics?{empty}")
    )
    window.open("metrics?dependency=switched")
    expect(window.page.locator("main .empty")).to_contain_text("Nothing happened in this time.")
