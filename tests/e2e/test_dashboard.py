"""The dashboard in a browser, over the real system."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import NARROW, WIDE, Window, chromium
from tests.e2e.system import System
from tests.e2e.target import Target
from tools.processes import eventually

SETTINGS = Path(__file__).with_name("dashboard.toml")

expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the module: Playwright's loop must be gone before asynchronous tests run."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def seen(browser: Browser, tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[System]:
    """An app with something to see of everything."""
    assert browser.is_connected()
    system = System(tmp_path_factory.mktemp("dashboard"), target, DEPENDENCIES_FILE=str(SETTINGS))
    system.server.start()
    event = {"type": "charge.completed", "queue": "dashboard-events", "data": {}}
    system.until(system.accepted("fine", "/echo", on_success=[event]), "succeeded")
    dead_letter(system, "hopeless")
    system.until(system.accepted("waits", "/fail/9", dependency="patient"), "waiting_retry")
    yield system
    system.client.close()
    assert system.server.stop() == 0


@pytest.fixture
def window(browser: Browser, seen: System) -> Iterator[Window]:
    with Window(browser, seen.url) as window:
        yield window


def dead_letter(system: System, key: str, path: str = "/status/422", **more: Any) -> str:
    document = system.until(system.accepted(key, path, **more), "dead_lettered")
    found: str = document["dead_letter"]["id"]
    return found


def shown(system: System, dead_letter_id: str) -> dict[str, Any]:
    document: dict[str, Any] = system.client.get(f"/api/dead-letters/{dead_letter_id}").json()
    return document


def test_the_overview_shows_states_circuits_causes_and_the_outbox(window: Window) -> None:
    window.open()
    figures = window.page.locator(".figures")
    expect(figures).to_contain_text("open dead letters")
    expect(window.card("Operations").get_by_role("img")).to_have_accessible_name(
        re.compile("1 waiting retry")
    )
    expect(window.card("Dependencies")).to_contain_text("patient")
    expect(window.card("Dead letters by cause")).to_contain_text("Rejected by dependency")
    expect(window.card("Outbox")).to_contain_text("Nothing is waiting to be sent")
    expect(window.card("Next attempts")).to_contain_text("waits")
    expect(window.page.locator("#live-text")).to_have_text("Live")


def test_what_changes_shows_without_reloading(window: Window, seen: System, key: str) -> None:
    window.open("operations")
    expect(window.page.get_by_role("link", name=key, exact=True)).to_have_count(0)
    seen.accepted(key, "/echo")
    expect(window.page.get_by_role("link", name=key, exact=True)).to_be_visible()


def test_an_operation_tells_why_it_waits_and_counts_down(window: Window, seen: System, key: str) -> None:
    operation_id = seen.accepted(key, "/fail/1", dependency="patient")
    seen.until(operation_id, "waiting_retry")
    window.open(f"operations/{operation_id}")
    timeline = window.card("Timeline")
    expect(timeline).to_contain_text("Attempt 1")
    expect(timeline).to_contain_text("Because: fixed 600 s")
    countdown = timeline.locator("time[data-tick=until]")
    expect(countdown).to_have_text(re.compile(r"in 9 min"))
    before = countdown.text_content()
    expect(countdown).not_to_have_text(str(before))
    waits = timeline.locator("svg.strip rect.is-retry").bounding_box()
    drawing = timeline.locator("svg.strip").bounding_box()
    assert waits is not None
    assert drawing is not None
    assert waits["width"] > 0.95 * drawing["width"]

    window.button("Retry now").click()
    expect(timeline).to_contain_text("Attempt 2")
    expect(window.page.locator(".headline .badge")).to_have_text("Succeeded")
    expect(window.button("Cancel")).to_have_count(0)


def test_an_operation_is_cancelled_after_asking(window: Window, seen: System, key: str) -> None:
    operation_id = seen.accepted(key, "/fail/9", dependency="patient")
    seen.until(operation_id, "waiting_retry")
    window.open(f"operations/{operation_id}")
    window.button("Cancel").click()
    window.dialog().get_by_role("button", name="Not now").click()
    assert seen.status(operation_id)["status"] == "waiting_retry"
    window.button("Cancel").click()
    window.dialog().get_by_role("button", name="Cancel it").click()
    seen.until(operation_id, "cancelled")
    expect(window.page.locator(".headline .badge")).to_have_text("Cancelled")


def test_a_dead_letter_is_edited_and_replayed_with_what_changed_in_view(
    window: Window, seen: System, key: str
) -> None:
    found = dead_letter(seen, key)
    window.open(f"dead-letters/{found}")
    expect(window.card("Request")).to_contain_text("/status/422")
    window.page.get_by_role("link", name="Edit and replay").click()
    replay = window.button("Replay edited")
    expect(replay).to_be_disabled()
    area = window.page.get_by_label("Request (JSON)")
    text = area.input_value()
    area.fill(text + ",")
    expect(window.page.get_by_role("alert").filter(has_text="Not JSON yet")).to_be_visible()
    expect(replay).to_be_disabled()
    area.fill(text.replace("/status/422", "/echo"))
    expect(window.page.locator(".diff .gone")).to_have_text(re.compile("/status/422"))
    expect(window.page.locator(".diff .new")).to_have_text(re.compile("/echo"))
    window.page.get_by_label("Note (optional)").fill("it moved")
    replay.click()
    expect(window.page.locator(".headline .badge")).to_have_text("Succeeded")
    kept = shown(seen, found)
    assert kept["status"] == "replayed"
    assert [replayed["note"] for replayed in kept["replays"]] == ["it moved"]
    assert [change["pointer"] for change in kept["replays"][0]["changes"]] == ["/request/path"]


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


def test_many_are_replayed_after_a_dry_run(window: Window, seen: System, key: str) -> None:
    found = [dead_letter(seen, f"{key}-{number}", "/status/409") for number in range(3)]
    group = shown(seen, found[0])["group"]
    window.open(f"replays/new?group={group}&rate=50")
    expect(window.card("Dry run")).to_contain_text("3 open dead letters match")
    window.button("Replay 3…").click()
    window.dialog().get_by_role("button", name="Replay 3").click()
    expect(window.page.locator(".headline .badge")).to_have_text("Completed")
    expect(window.card("Progress")).to_contain_text("3 of 3")
    assert all(shown(seen, each)["status"] == "replayed" for each in found)


def test_a_bulk_replay_is_cancelled_on_the_way(window: Window, seen: System, key: str) -> None:
    found = [dead_letter(seen, f"{key}-{number}", "/status/405") for number in range(3)]
    group = shown(seen, found[0])["group"]
    window.open(f"replays/new?group={group}&rate=0.01")
    window.button("Replay 3…").click()
    window.dialog().get_by_role("button", name="Replay 3").click()
    expect(window.card("Progress")).to_contain_text("1 of 3")
    window.button("Cancel").click()
    window.dialog().get_by_role("button", name="Cancel it").click()
    expect(window.page.locator(".headline .badge")).to_have_text("Cancelled")
    assert sorted(shown(seen, each)["status"] for each in found) == ["open", "open", "replayed"]


def test_a_circuit_is_switched_with_a_reason_that_the_trail_keeps(window: Window, seen: System) -> None:
    window.open("circuits/switched")
    window.button("Hold open").click()
    window.dialog().get_by_role("button", name="Hold open").click()
    expect(window.dialog()).to_be_visible()  # a reason is missing
    window.page.get_by_label("Why?").fill("maintenance")
    window.page.get_by_label("For how many seconds?").fill("600")
    window.dialog().get_by_role("button", name="Hold open").click()
    expect(window.page.locator(".headline .badge")).to_have_text("Forced open")
    expect(window.page.locator(".headline")).to_contain_text("held, ends in 9 min")
    expect(window.card("Done by hand")).to_contain_text("maintenance")
    window.button("Close").click()
    window.page.get_by_label("Why?").fill("done")
    window.dialog().get_by_role("button", name="Close").click()
    expect(window.page.locator(".headline .badge")).to_have_text("Closed")
    trail = seen.client.get("/api/circuits/switched").json()["audit"]
    assert [entry["reason"] for entry in trail] == ["done", "maintenance"]


def test_a_dependency_that_fails_moves_its_bar(window: Window, seen: System, key: str) -> None:
    window.open("circuits")
    bar = window.page.locator(".circuit").filter(has_text="flaky").locator(".ratio-fill")
    seen.until(seen.accepted(f"{key}-0", "/fail/9"), "dead_lettered")
    expect(bar).not_to_have_css("width", "0px")
    before = bar.evaluate("bar => bar.style.width")
    for number in range(20):
        seen.accepted(f"{key}-well-{number}", "/echo")
    expect(bar).not_to_have_attribute("style", f"width: {before};")


def test_a_policy_is_previewed_and_its_address_can_be_shared(window: Window) -> None:
    window.open("policy?dependency=patient")
    expect(window.card("Waits")).to_contain_text("10 min")
    window.page.get_by_label("Most attempts").fill("1")
    window.page.get_by_label("Most attempts").press("Enter")
    expect(window.card("Waits")).to_contain_text("One attempt, no wait.")
    assert "max_attempts=1" in window.page.url
    window.page.get_by_label("First wait (s)").fill("-1")
    window.page.get_by_label("First wait (s)").press("Enter")
    expect(window.page.get_by_role("status")).to_contain_text("/retry/initial_seconds")


def test_an_event_is_sent_once_more(window: Window) -> None:
    window.open("outbox?state=sent")
    row = window.page.get_by_role("row").filter(has_text="queue dashboard-events")
    row.get_by_role("button", name="Resend").click()
    expect(window.page.locator(".toast")).to_have_text("Sending it once more.")


def test_a_lost_connection_is_told_with_since_when_and_found_again(window: Window) -> None:
    window.open("operations")
    window.context.set_offline(offline=True)
    banner = window.page.locator("#banner")
    expect(banner).to_contain_text(re.compile(r"not answered since \d\d:\d\d:\d\d"))
    expect(window.page.get_by_role("link", name="fine")).to_be_visible()  # what was known stays
    window.context.set_offline(offline=False)
    expect(banner).to_be_hidden()
    expect(window.page.locator("#live-text")).to_have_text("Live")


def test_a_part_that_is_missing_is_told_beside_those_that_work(window: Window) -> None:
    window.page.route("**/api/outbox?**", lambda route: route.fulfill(status=503))
    window.open()
    expect(window.card("Outbox")).to_contain_text("The API answered 503")
    expect(window.card("Dependencies")).to_contain_text("patient")


def test_a_hidden_page_asks_nothing(window: Window) -> None:
    window.open("operations")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"
    window.page.evaluate(hide % "true")
    window.page.wait_for_load_state("networkidle")
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url))
    window.page.wait_for_timeout(
        6_000
    )  # The absence of something can only be waited for: a poll is due at 5 s.
    assert asked == []
    window.page.evaluate(hide % "false")
    with window.page.expect_response(re.compile("/api/operations")):
        window.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_the_keyboard_is_enough(window: Window, seen: System) -> None:
    window.open()
    page = window.page
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Open by id")).to_be_focused()
    page.keyboard.type(dead_letter(seen, "keyboard"))
    page.keyboard.press("Enter")
    expect(window.button("Replay")).to_be_visible()
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(window.button("Replay")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Note", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(window.dialog()).to_have_count(0)
    expect(window.button("Replay")).to_be_focused()


VIEWS = (
    "",
    "operations",
    "operations/{operation}",
    "dead-letters",
    "dead-letters/{dead_letter}",
    "dead-letters/{dead_letter}?edit=1",
    "replays/new",
    "circuits",
    "circuits/patient",
    "outbox?state=sent",
    "policy",
    "operations/unknown",
)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_view_passes_the_accessibility_checker_and_fits_the_window(
    browser: Browser, seen: System, size: tuple[int, int], colours: str
) -> None:
    names = {
        "operation": seen.client.get("/api/operations?status=waiting_retry").json()["items"][0][
            "operation_id"
        ],
        "dead_letter": seen.client.get("/api/dead-letters?status=open").json()["items"][0]["id"],
    }
    with Window(browser, seen.url, size=size, color_scheme=colours, bypass_csp=True) as window:
        for view in VIEWS:
            window.open(view.format(**names))
            assert (view, window.violations()) == (view, [])
            assert (view, window.overflow()) == (view, 0)


def test_text_of_callers_is_text(window: Window, seen: System, key: str) -> None:
    evil = "<img src=x onerror=alert(1)>"
    operation_id = seen.accepted(f"{key}<b>", "/echo", correlation_id=evil)
    seen.until(operation_id, "succeeded")
    window.open(f"operations/{operation_id}")
    expect(window.card("About")).to_contain_text(evil)
    expect(window.page.locator(".key")).to_have_text(f"{key}<b>")
    assert window.page.locator("main img").count() == 0


def test_a_long_list_is_shown_a_page_at_a_time_and_saved_as_csv(
    window: Window, seen: System, key: str, tmp_path: Path
) -> None:
    request = {"dependency": "flaky", "request": {"method": "POST", "path": "/echo", "json": {}}}
    items = [{**request, "key": f"={key}-{number}", "correlation_id": "=1+1"} for number in range(60)]
    seen.client.post("/api/batches", json={"items": items}).raise_for_status()
    path = "/api/operations?limit=200&status=succeeded"
    eventually(lambda: len(seen.client.get(path).json()["items"]) >= 60, "they ran")
    window.open("operations?status=succeeded")
    rows = window.page.locator("tbody tr")
    expect(rows).to_have_count(50)
    with window.page.expect_download() as waiting:
        window.button("CSV of this page").click()
    waiting.value.save_as(tmp_path / "page.csv")
    first_page = list(csv.DictReader((tmp_path / "page.csv").read_text().splitlines()))
    assert len(first_page) == 50
    assert {"'=1+1"} <= {line["Correlation"] for line in first_page}  # never a formula
    window.page.get_by_role("link", name="Next page").click()
    shown_before = {line["Operation"] for line in first_page}
    link = rows.first.get_by_role("link").first
    expect(window.page.get_by_role("link", name="First page")).to_be_visible()
    eventually(
        lambda: str(link.get_attribute("href")).rpartition("/")[2] not in shown_before, "the next page shows"
    )
    assert "cursor=" in window.page.url


def test_colours_follow_the_system_until_somebody_chooses(browser: Browser, seen: System) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with Window(browser, seen.url, color_scheme="dark") as window:
        window.open("policy")
        dark = window.page.evaluate(background)
        window.page.locator("#theme-button").click()
        assert window.page.evaluate(background) != dark
        window.page.reload()
        expect(window.page.locator("#theme-button")).to_have_text("Light")


def test_a_key_is_asked_for_kept_in_the_tab_and_sent(
    browser: Browser, target: Target, tmp_path: Path
) -> None:
    system = System(tmp_path, target, DEPENDENCIES_FILE=str(SETTINGS))
    system.server.command.append("--auth")
    system.server.start()
    try:
        with Window(browser, system.url) as window:
            window.open("circuits")
            expect(window.page.locator("#banner")).to_contain_text("asks for a function key")
            window.button("Give a key").click()
            keys = json.loads((tmp_path / "data" / "keys.json").read_text())
            window.page.get_by_label("Key", exact=True).fill(keys["function"])
            window.button("Use it").click()
            expect(window.page.locator(".circuit")).to_have_count(3)
            expect(window.page.locator("#banner")).to_be_hidden()
            assert keys["function"] not in window.page.evaluate(
                "JSON.stringify({...localStorage}) + location"
            )
    finally:
        system.client.close()
        system.server.stop()


def test_a_known_file_is_not_sent_again(seen: System) -> None:
    first = seen.client.get("/api/dashboard/app.js")
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    again = seen.client.get("/api/dashboard/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    redirected: httpx.Response = seen.client.get("/api/dashboard/", follow_redirects=True)
    assert (redirected.status_code, redirected.url.path) == (200, "/api/dashboard")
