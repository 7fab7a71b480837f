"""Metrics over time in a browser."""

import re

from playwright.sync_api import expect

from tests.support.app import System
from tests.support.browser import Window


def test_failures_show_in_charts_table_and_overview(window: Window, seen: System, key: str) -> None:
    seen.until(seen.accepted(f"{key}-fails", "/fail/9"), "dead_lettered")
    window.open("metrics?dependency=flaky&minutes=15")
    attempts = window.card("Attempts").get_by_role("img")
    expect(attempts).to_have_accessible_name(re.compile(r"attempts in steps of 1 min, at most \d+"))
    expect(window.card("Failed attempts by category")).to_contain_text("Transient")
    expect(window.card("Time of a whole operation").locator("path.trace")).to_have_count(2)
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


def test_a_time_without_operations_says_so(window: Window) -> None:
    empty = "dependency=switched&from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z"
    window.page.route(
        "**/api/metrics?**", lambda route: route.continue_(url=f"{window.url}/api/metrics?{empty}")
    )
    window.open("metrics?dependency=switched")
    expect(window.page.locator("main .empty")).to_contain_text("Nothing happened in this time.")
