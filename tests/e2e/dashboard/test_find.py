import json
import re
import subprocess

import pytest
from playwright.sync_api import expect

from scripts.processes import eventually
from tests.support.app import System, dead_letter
from tests.support.browser import Window


def test_one_box_tells_why_something_did_not_go_through(window: Window, seen: System, key: str) -> None:
    dead_letter_id = dead_letter(seen, f"{key}-lost", correlation_id=f"order-{key}")
    seen.until(seen.accepted(f"{key}-sent", "/echo", correlation_id=f"order-{key}"), "succeeded")
    window.open()
    box = window.page.get_by_label("Find", exact=True)
    box.fill(f"ORDER-{key}")
    box.press("Enter")
    expect(window.page.locator("h1")).to_contain_text(f"ORDER-{key}")
    rows = window.page.locator("tbody tr")
    expect(rows).to_have_count(3)
    operations, letters = (
        rows.filter(has_text="Operation"),
        rows.filter(has_text=re.compile("^Dead letter(?!ed)")),
    )
    expect(operations.nth(0)).to_contain_text(re.compile(f"Succeeded.*{key}-sent"))
    expect(operations.nth(1)).to_contain_text(re.compile(f"Dead lettered.*{key}-lost.*status 422"))
    expect(letters).to_have_count(1)
    expect(box).to_have_value(f"ORDER-{key}")
    expect(window.card("Where it is")).to_have_count(0)
    window.page.get_by_label("Type").select_option("Dead letters")
    expect(rows).to_have_count(1)
    window.page.go_back()
    expect(rows).to_have_count(3)

    operations.nth(1).get_by_role("link", name=f"{key}-lost").click()
    expect(window.card("Request")).to_contain_text('"path": "/status/422"')
    window.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    window.page.get_by_role("button", name="Copy as curl").click()
    copied = eventually(lambda: window.page.evaluate("navigator.clipboard.readText()"), "it is copied")
    answer = subprocess.run(["bash", "-c", copied], capture_output=True, text=True, check=True)  # noqa: S607
    assert json.loads(answer.stdout)["operation_id"]
    expect(box).to_have_value("")
    window.page.go_back()
    expect(box).to_have_value(f"ORDER-{key}")
    letters.get_by_role("link", name=f"{key}-lost").click()
    expect(window.page).to_have_url(re.compile(f"#/dead-letters/{dead_letter_id}$"))


def test_a_search_without_a_match_says_so(window: Window) -> None:
    window.open("find?q=nobody-has-this")
    expect(window.page.locator("main")).to_contain_text("No match.")


def test_the_one_that_is_asked_about_is_answered_at_once(window: Window, seen: System, key: str) -> None:
    dead_letter_id = dead_letter(seen, f"{key}-lost")
    window.open(f"find?q={key}-lost")
    answer = window.card("Where it is")
    expect(answer).to_contain_text(re.compile(f"Dead lettered {key}-lost after 1 attempt.*status 422"))
    answer.get_by_role("link", name="Its dead letter").click()
    expect(window.page).to_have_url(re.compile(f"#/dead-letters/{dead_letter_id}$"))


@pytest.mark.long
def test_filters_stand_in_the_address_and_follow_back(window: Window, seen: System, key: str) -> None:
    seen.until(seen.accepted(f"{key}-one", "/echo"), "succeeded")
    seen.until(seen.accepted(f"{key}-two", "/fail/9", dependency="patient"), "waiting_retry")
    window.open("operations")
    page, rows = window.page, window.page.locator("tbody tr")
    search, state = page.get_by_label("Search", exact=True), page.get_by_label("State", exact=True)
    search.fill(key)
    search.press("Enter")
    expect(rows).to_have_count(2)
    state.select_option("waiting_retry")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile(rf"\?q={key}&status=waiting_retry$"))
    page.reload()
    expect(rows).to_have_count(1)
    expect(search).to_have_value(key)
    page.go_back()
    expect(state).to_have_value("")
    expect(rows).to_have_count(2)
    page.go_back()
    expect(search).to_have_value("")
    eventually(lambda: rows.count() > 2, "everything is listed again")
    page.go_forward()
    expect(search).to_have_value(key)
    expect(rows).to_have_count(2)


def test_dead_letters_are_searched_in_their_list_too(window: Window, seen: System, key: str) -> None:
    dead_letter(seen, f"{key}-lost")
    window.open("dead-letters")
    search = window.page.get_by_label("Search", exact=True)
    search.fill(key)
    search.press("Enter")
    expect(window.page.locator("tbody tr")).to_have_count(1)
    expect(window.page.get_by_role("link", name=re.compile("Replay"))).to_have_count(0)
