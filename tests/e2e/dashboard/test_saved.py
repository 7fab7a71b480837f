import re

from playwright.sync_api import Browser, expect

from tests.support.app import System
from tests.support.browser import Window


def test_a_view_is_named_found_again_and_forgotten(browser: Browser, seen: System) -> None:
    with Window(browser, seen.url) as window:
        saved = window.page.get_by_role("navigation", name="Saved views")
        window.open("operations")
        expect(saved).to_have_count(0)
        window.open("operations?status=waiting_retry&dependency=patient")
        window.button("Save this view…").click()
        window.dialog().get_by_label("Name").fill("Patient, waiting")
        window.button("Save").click()
        expect(saved.get_by_role("link", name="Patient, waiting")).to_have_attribute("aria-current", "page")
        expect(window.button("Save this view…")).to_have_count(0)
        window.button("Clear the filters").click()
        expect(window.page.get_by_label("State")).to_have_value("")
        window.page.reload()
        saved.get_by_role("link", name="Patient, waiting").click()
        expect(window.page).to_have_url(re.compile("status=waiting_retry&dependency=patient"))
        expect(window.page.locator("tbody tr").first).to_contain_text("patient")
        window.open("dead-letters")
        expect(saved).to_have_count(0)  # a name stands where its view is
        window.open("operations")
        saved.get_by_role("button", name="Forget “Patient, waiting”").click()
        expect(saved).to_have_count(0)


def test_filters_suggest_dependencies_handlers_and_states(window: Window) -> None:
    window.open("find?q=fine")
    for choice in (
        "dependency option[value=patient]",
        "handler option[value=book-trip]",
        "status option[value=compensated]",
    ):
        expect(window.page.locator(f"#known-{choice}")).to_have_count(1)
    window.open("operations")
    expect(window.page.locator("#known-handler option[value=book-trip]")).to_have_count(1)


def test_what_another_program_wrote_into_the_browsers_store_breaks_nothing(window: Window) -> None:
    window.open()
    for text in ("{", "[7]", "null", '[{"path": "operations"}]'):
        window.page.evaluate("text => localStorage.setItem('saved-views', text)", text)
        window.open(f"operations?q={len(text)}")
        expect(window.button("Save this view…")).to_be_visible()
