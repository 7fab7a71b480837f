import pytest
from playwright.sync_api import expect

from tests.support.app import System, dead_letter, shown
from tests.support.browser import Window


def test_selected_dead_letters_are_archived_with_a_note(window: Window, seen: System, key: str) -> None:
    found = [dead_letter(seen, f"{key}-{number}", "/status/415") for number in range(3)]
    window.open(f"dead-letters?group={shown(seen, found[0])['group']}")
    for number in (0, 2):
        window.page.get_by_label(f"Select {key}-{number}").check()
    expect(window.page.get_by_text("2 selected")).to_be_visible()
    window.button("Archive selected…").click()
    expect(window.card("Dry run")).to_contain_text("2 open dead letters selected")
    window.button("Archive 2…").click()
    window.answer("Archive 2", {"Note": "not ours"}, badge="Completed")
    expect(window.card("Progress")).to_contain_text("2 of 2")
    assert [shown(seen, each)["status"] for each in found] == ["archived", "open", "archived"]
    assert [note["text"] for note in shown(seen, found[2])["notes"]] == ["not ours"]


def test_what_was_archived_is_restored_in_bulk(window: Window, seen: System, key: str) -> None:
    found = [dead_letter(seen, f"{key}-{number}", "/status/414") for number in range(3)]
    group = shown(seen, found[0])["group"]
    for each in found[:2]:
        seen.client.post(f"/api/dead-letters/{each}/archive").raise_for_status()
    window.open(f"dead-letters?group={group}&status=archived")
    window.page.get_by_text("All matching").click()
    window.page.get_by_role("link", name="Restore…").click()
    expect(window.card("Dry run")).to_contain_text("2 archived dead letters")
    window.button("Restore 2…").click()
    window.answer("Restore 2", badge="Completed")
    assert [shown(seen, each)["status"] for each in found] == ["open", "open", "open"]


def test_what_failed_of_a_batch_is_replayed_from_its_page(window: Window, seen: System, key: str) -> None:
    paths = {"good": "/echo", "bad": "/status/415"}
    items = [
        {"dependency": "flaky", "key": f"{key}-{name}", "request": {"method": "POST", "path": path}}
        for name, path in paths.items()
    ]
    batch_id = seen.client.post("/api/batches", json={"items": items}).json()["batch_id"]
    window.open(f"batches/{batch_id}")
    window.page.get_by_role("link", name="Replay the failed…").click()
    expect(window.card("Dry run")).to_contain_text(f"1 open dead letter of the batch {batch_id}")
    window.button("Replay 1…").click()
    window.answer("Replay 1", badge="Completed")
    expect(window.card("Progress")).to_contain_text("1 of 1")


def test_a_replay_that_stops_says_why_and_is_resumed_from_its_page(
    window: Window, seen: System, key: str
) -> None:
    for number, times in enumerate((2, 1, 1)):
        dead_letter(seen, f"{key}-{number}", f"/fail/{times}?status=415")
    window.open(f"dead-letters?q={key}")
    for number in range(3):
        window.page.get_by_label(f"Select {key}-{number}").check()
    window.button("Replay selected…").click()
    window.button("Replay 3…").click()
    expect(window.dialog().get_by_label("Sends")).to_contain_text("1, then 5, then the rest")
    window.answer("Replay 3")
    headline = window.page.locator(".headline")
    expect(headline.locator(".badge")).to_have_text("Stopped")
    expect(headline).to_contain_text("1 of 3 replayed: still 415")
    expect(window.card("About")).to_contain_text("where more than 50 % of the last 20 fail again")
    window.button("Resume").click()
    window.answer("Resume")
    expect(headline.locator(".badge")).to_have_text("Completed")
    expect(window.card("Progress")).to_contain_text("3 of 3")


def waiting_pair(seen: System, key: str) -> list[str]:
    """Two operations that wait for a retry: `KEY-0` and `KEY-1`."""
    ids = [seen.accepted(f"{key}-{number}", "/fail/9", dependency="patient") for number in range(2)]
    for each in ids:
        seen.until(each, "waiting_retry")
    return ids


def begin_on_pair(window: Window, key: str, verb: str) -> None:
    """Select them in the list, and go on to the question whether to do it."""
    window.open(f"operations?q={key}")
    for number in range(2):
        window.page.get_by_label(f"Select {key}-{number}").check()
    window.button(f"{verb} selected…").click()
    window.button(f"{verb} 2…").click()


def test_selected_operations_are_paused_and_resumed(window: Window, seen: System, key: str) -> None:
    ids = waiting_pair(seen, key)
    begin_on_pair(window, key, "Pause")
    window.dialog().get_by_label("Why").fill("the supplier moves")
    window.dialog().get_by_label("For how many seconds").fill("600")
    window.dialog().get_by_label("Deadline").select_option("stops while it is paused")
    window.answer("Pause 2", badge="Completed")
    expect(window.card("About")).to_contain_text("the supplier moves")
    expect(window.card("About")).to_contain_text("stops while they are paused")
    for each in ids:
        seen.until(each, "paused")
    begin_on_pair(window, key, "Resume")
    window.dialog().get_by_label("First wait, in seconds").fill("700")
    window.dialog().get_by_label("Priority").select_option("high")
    window.answer("Resume 2", badge="Completed")
    for each in ids:
        changed = seen.until(each, "waiting_retry")["actions"][-1]["after"]
        assert changed == {"retry": {"initial_seconds": 700}, "priority": "high"}
        seen.client.post(f"/api/operations/{each}/cancel").raise_for_status()


@pytest.mark.long
def test_selected_operations_are_cancelled(window: Window, seen: System, key: str) -> None:
    ids = waiting_pair(seen, key)
    begin_on_pair(window, key, "Cancel")
    tab = window.page.locator("#tabs a[aria-current]")
    expect(tab).to_have_text("Operations")
    window.answer("Cancel 2", badge="Completed")
    expect(tab).to_have_text("Operations")
    for each in ids:
        seen.until(each, "cancelled")
    window.open("bulk-actions")
    expect(window.page.get_by_role("row").nth(1)).to_contain_text("Cancel")
