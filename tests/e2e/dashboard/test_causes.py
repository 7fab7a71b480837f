from playwright.sync_api import expect

from tests.support.app import System, dead_letter, shown
from tests.support.browser import Window


def test_a_cause_is_taken_over_and_resolved_and_says_when_it_came_back(
    window: Window, seen: System, key: str
) -> None:
    group = shown(seen, dead_letter(seen, f"{key}-1", "/status/411"))["group"]
    window.open(f"causes/{group}")
    state = window.page.locator(".headline .badge").first
    expect(state).to_have_text("New")
    expect(window.card("The latest")).to_contain_text("/status/411")
    window.button("Acknowledge…").click()
    window.answer("Acknowledge", {"Note": "asked the vendor"})
    expect(state).to_have_text("Acknowledged")
    expect(window.card("Notes")).to_contain_text("asked the vendor")
    window.page.get_by_label("New note").fill("they mend it by noon")
    window.button("Add").click()
    expect(window.card("Notes")).to_contain_text("they mend it by noon")
    window.button("Resolve…").click()
    window.answer("Resolve")
    expect(state).to_have_text("Resolved")
    dead_letter(seen, f"{key}-2", "/status/411")
    expect(window.page.locator(".headline")).to_contain_text("Came back")
    window.open("dead-letters")
    row = window.card("open dead letter").locator("li").filter(has_text="status 411")
    expect(row).to_contain_text("Came back")


def test_one_change_to_many_is_seen_before_they_are_replayed(window: Window, seen: System, key: str) -> None:
    found = [dead_letter(seen, f"{key}-{number}", "/status/416") for number in range(2)]
    window.open(f"bulk-actions/new?rate=50&group={shown(seen, found[0])['group']}")
    add = window.button("Add the change")
    window.page.get_by_label("Place").fill("/request/json/none")
    window.page.get_by_label("Change", exact=True).select_option("remove")
    add.click()
    preview = window.card("What it does to the newest")
    expect(preview).to_contain_text("Would not be replayed: /request/json/none is not there")
    window.button("Undo").click()
    expect(preview).to_have_count(0)
    window.page.get_by_label("Place").fill("/request/path")
    window.page.get_by_label("Value, or where to move it from").fill("/echo")
    add.click()
    expect(preview.locator("li li")).to_have_text(['/request/path "/status/416" → "/echo"'] * 2)
    window.button("Replay 2…").click()
    window.answer("Replay 2", badge="Completed")
    expect(window.card("Change")).to_contain_text("/request/path")
    for each in found:
        seen.until(shown(seen, each)["operation_id"], "succeeded")


def test_a_change_that_is_filled_in_is_taken_along_and_said_before(
    window: Window, seen: System, key: str
) -> None:
    request = {"method": "POST", "path": "/fail/1", "query": {"status": "414"}, "json": {"amuont": 5}}
    found = dead_letter(seen, key, request=request)
    window.open(f"bulk-actions/new?ids={found}")
    replay = window.button("Replay 1…")
    window.page.get_by_label("Change", exact=True).select_option("move")
    window.button("/request/json/amuont").click()
    window.page.get_by_label("Place").fill("amount")
    replay.click()
    expect(window.page.locator(".toast")).to_contain_text("Name the place to change")
    window.page.get_by_label("Place").fill("/request/json/amount")
    replay.click()
    expect(window.dialog()).to_contain_text("1 selected, with: move amuont to amount.")
    window.answer("Replay 1", badge="Completed")
    changes = shown(seen, found)["replays"][0]["changes"]
    assert [each["pointer"] for each in changes] == ["/request/json/amount", "/request/json/amuont"]


def test_all_that_a_list_shows_are_acted_on_by_one_menu(window: Window, seen: System, key: str) -> None:
    group = shown(seen, dead_letter(seen, key, "/status/412"))["group"]
    window.open(f"dead-letters?group={group}")
    window.page.get_by_text("All matching").click()
    window.page.get_by_role("link", name="Archive…").click()
    expect(window.card("Dry run")).to_contain_text("1 open dead letter match")
    window.button("Archive 1…").click()
    expect(window.dialog()).to_contain_text("1 of status 412")
