import re

import pytest
from playwright.sync_api import Route, expect

from tests.support.app import System, dead_letter, shown
from tests.support.browser import Window


def test_the_list_says_how_many_match_in_all(window: Window, seen: System, key: str) -> None:
    for number in range(2):
        dead_letter(seen, f"{key}-{number}", "/status/413")
    found = seen.client.get("/api/dead-letters?status=open&limit=200").json()["items"]
    window.open("dead-letters?status=open")
    expect(window.page.locator(".pager")).to_contain_text(f"on this page, {len(found)} in all")
    window.open(f"dead-letters?q={key}")
    expect(window.page.locator(".pager")).to_contain_text("2 rows on this page")
    expect(window.page.locator(".pager")).not_to_contain_text("in all")


def test_a_dead_letter_is_edited_and_replayed_with_what_changed_in_view(
    window: Window, seen: System, key: str
) -> None:
    found = dead_letter(seen, key)
    window.open(f"dead-letters/{found}")
    expect(window.card("Request")).to_contain_text("/status/422")
    window.page.get_by_role("link", name="Edit and replay").click()
    expect(window.button("Replay unedited")).to_be_enabled()
    expect(window.page.locator("button.main")).to_have_count(1)
    replay = window.button("Replay edited")
    area = window.page.get_by_label("Request (JSON)")
    text = area.input_value()
    area.fill(text + ",")
    expect(window.page.get_by_role("alert").filter(has_text="Not JSON yet")).to_be_visible()
    expect(replay).to_be_disabled()
    area.fill(text.replace("/status/422", "/echo"))
    expect(window.page.locator(".diff del")).to_have_text(re.compile("/status/422"))
    expect(window.page.locator(".diff ins")).to_have_text(re.compile("/echo"))
    window.page.get_by_label("Note (optional)").fill("it moved")
    replay.click()
    expect(window.page.locator(".headline .badge")).to_have_text("Replayed")
    outcome = window.card("Outcome of the replay")
    expect(outcome.locator(".badge")).to_have_text("Succeeded")
    outcome.get_by_role("link", name="Look at the operation").click()
    replays = window.card("Replays")
    expect(replays.locator(".badge")).to_have_text("Succeeded")
    expect(replays).to_contain_text("it moved")
    replays.get_by_role("link", name="Rejected by dependency").click()
    expect(outcome).to_be_visible()
    kept = shown(seen, found)
    assert kept["status"] == "replayed"
    assert [replayed["note"] for replayed in kept["replays"]] == ["it moved"]
    assert [change["pointer"] for change in kept["replays"][0]["changes"]] == ["/request/path"]


@pytest.mark.long
def test_an_axis_names_no_instant_twice(window: Window, seen: System, key: str) -> None:
    found = dead_letter(seen, key)

    def brief(route: Route) -> None:
        record = route.fetch().json()
        route.fulfill(json=record | {"attempts": [record["attempts"][0] | {"duration_ms": 1.4}]})

    window.page.route(f"**/api/dead-letters/{found}", brief)
    window.open(f"dead-letters/{found}")
    expect(window.card("Attempts").locator(".axis span")).to_have_text(["0 s", "+1 ms"])


def test_typed_text_outlives_the_polls(window: Window, seen: System, key: str) -> None:
    found = dead_letter(seen, key)
    window.open(f"dead-letters/{found}?edit=1")
    area = window.page.get_by_label("Request (JSON)")
    area.fill('{"mine": true}')
    answers: list[str] = []
    window.page.on("response", lambda response: answers.append(response.url))
    for count in (1, 2):
        with window.page.expect_response(re.compile(f"/api/dead-letters/{found}$")):
            pass
        assert len(answers) >= count
    expect(area).to_have_value('{"mine": true}')
    expect(area).to_be_focused()


def test_a_dead_letter_is_noted_archived_and_restored(window: Window, seen: System, key: str) -> None:
    found = dead_letter(seen, key)
    window.open(f"dead-letters/{found}")
    window.page.get_by_label("New note").fill("asked the partner")
    window.button("Add").click()
    expect(window.card("Notes")).to_contain_text("asked the partner")
    window.button("Archive").click()
    expect(window.page.locator(".headline .badge")).to_have_text("Archived")
    window.button("Restore").click()
    expect(window.page.locator(".headline .badge")).to_have_text("Open")
    kept = shown(seen, found)
    assert [note["text"] for note in kept["notes"]] == ["asked the partner"]
    assert kept["status"] == "open"


@pytest.mark.long
def test_a_replay_of_many_begins_with_one_and_stops_where_that_fails_again(
    window: Window, seen: System, key: str
) -> None:
    found = [dead_letter(seen, f"{key}-{number}", "/status/409") for number in range(3)]
    group = shown(seen, found[0])["group"]
    window.open(f"bulk-actions/new?group={group}&rate=50")
    expect(window.card("Dry run")).to_contain_text("3 open dead letters match")
    window.button("Replay 3…").click()
    window.answer("Replay 3", badge="Stopped")
    expect(window.card("Progress")).to_contain_text("1 of 3")
    assert sorted(shown(seen, each)["status"] for each in found) == ["open", "open", "replayed"]
    items = window.card("Items")
    expect(items.get_by_role("link", name="failed again")).to_have_count(1)
    items.get_by_role("link", name="failed again").click()
    expect(window.page.locator(".headline .badge")).to_have_text("Open")


@pytest.mark.long
def test_a_bulk_action_is_cancelled_on_the_way(window: Window, seen: System, key: str) -> None:
    found = [dead_letter(seen, f"{key}-{number}", "/status/405") for number in range(3)]
    group = shown(seen, found[0])["group"]
    window.open(f"bulk-actions/new?group={group}&rate=0.01")
    window.button("Replay 3…").click()
    window.answer("Replay 3")
    expect(window.card("Progress")).to_contain_text("1 of 3")
    window.button("Cancel").click()
    window.answer("Cancel it", badge="Cancelled")
    assert sorted(shown(seen, each)["status"] for each in found) == ["open", "open", "replayed"]


def test_a_handlers_dead_letter_is_replayed_from_a_step(window: Window, seen: System, key: str) -> None:
    body = {"handler": "book-trip", "input": {"max_attempts": 1, "hotel_attempts": 9}, "key": key}
    operation_id = seen.client.post("/api/operations", json=body).json()["operation_id"]
    document = seen.until(operation_id, "dead_lettered")
    window.open(f"dead-letters/{document['dead_letter']['id']}")
    for step, answer in (("train", "/from_step"), (document["steps"][0]["name"], "Replaying.")):
        window.button("Replay").click()
        window.dialog().get_by_label("From the step").fill(step)
        window.answer("Replay")
        expect(window.page.locator(".toast").filter(has_text=answer)).to_be_visible()


def test_a_dependency_is_asked_about_an_ambiguous_one_from_its_page(
    window: Window, seen: System, key: str
) -> None:
    found = dead_letter(seen, key, "/drop/99?when=after_body", dependency="unclear")
    window.open(f"dead-letters/{found}")
    window.button("Look up").click()
    expect(window.dialog()).to_contain_text("nothing is sent")
    window.answer("Look up")
    window.card("Outcome of the replay").get_by_role("link", name="Look at the new dead letter").click()
    expect(window.page.locator(".detail")).to_contain_text("its lookup got no answer")


@pytest.mark.parametrize(("path", "offers"), [("/drop/99?when=after_body", 1), ("/status/415", 0)])
def test_only_ambiguous_ones_are_offered_to_be_asked_about(
    window: Window, seen: System, key: str, path: str, offers: int
) -> None:
    dead_letter(seen, key, path, dependency="unclear")
    window.open(f"dead-letters?q={key}")
    window.page.get_by_label(f"Select {key}").check()
    expect(window.button("Replay selected…")).to_be_visible()
    expect(window.button("Look up selected…")).to_have_count(offers)
