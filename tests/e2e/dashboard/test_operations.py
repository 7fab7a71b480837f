import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from scripts.processes import ROOT, eventually
from tests.support.app import System, dead_letter, operation, shown
from tests.support.browser import NARROW, WIDE, Window
from tests.support.target import Target


def test_the_overview_shows_states_circuits_causes_and_the_outbox(window: Window) -> None:
    window.open()
    verdict = window.page.locator(".verdict")
    expect(verdict).to_have_text(re.compile(r"\d operations? waits? for a retry; \d+ open dead letters?\."))
    expect(window.page.locator(".figures")).to_contain_text("outbox lag")
    expect(window.card("Operations").get_by_role("img")).to_have_accessible_name(
        re.compile(r"[1-9]\d* waits for a retry")
    )
    expect(window.card("Dependencies")).to_contain_text("patient")
    refusing = window.page.locator(".circuit[data-key=flaky]")
    expect(refusing).to_contain_text(re.compile(r"\d dead letters?"))
    expect(window.page.locator(".healthy")).to_contain_text("limited")
    expect(window.card("Dead letters by cause")).to_contain_text("Rejected by dependency")
    # Another test's event may wait here for its receiver.
    expect(window.card("Outbox")).to_contain_text(
        re.compile("Nothing is waiting to be sent|1 pending, the oldest")
    )
    waiting = window.card("Waiting").locator("li").filter(has_text="patient")
    expect(waiting).to_contain_text(re.compile("For a retry patient.*next in"))
    expect(window.page.locator("#live-text")).to_have_text("Live")


def test_the_overview_has_one_row_for_a_cause_with_its_replay(window: Window, seen: System, key: str) -> None:
    # More than any other cause has here, for the largest are shown; no other test's call is answered 501.
    found = [dead_letter(seen, f"{key}-{number}", "/status/501") for number in range(6)]
    group = shown(seen, found[0])["group"]
    window.open()
    row = window.card("Dead letters by cause").locator("li").filter(has_text="status 501")
    expect(row).to_have_count(1)
    expect(row.locator(".count")).to_have_text("6")
    row.get_by_role("link", name="Replay…").click()
    expect(window.page).to_have_url(re.compile(f"bulk-actions/new.*group={group}"))
    expect(window.card("Dry run")).to_contain_text("6 open dead letters match")


@pytest.mark.long
def test_what_changes_shows_without_reloading(window: Window, seen: System, key: str) -> None:
    window.open("operations")
    expect(window.page.get_by_role("link", name=key, exact=True)).to_have_count(0)
    seen.accepted(key, "/echo")
    expect(window.page.get_by_role("link", name=key, exact=True)).to_be_visible()


@pytest.mark.long
def test_an_operation_shows_why_it_waits_and_counts_down(window: Window, seen: System, key: str) -> None:
    operation_id = seen.accepted(key, "/fail/1", dependency="patient")
    seen.until(operation_id, "waiting_retry")
    window.open(f"operations/{operation_id}")
    timeline = window.card("Timeline")
    expect(timeline).to_contain_text("Attempt 1")
    expect(timeline).to_contain_text("fixed 600 s")
    countdown = timeline.locator("time[data-tick=until]")
    expect(countdown).to_have_text(re.compile(r"in 9 min"))
    before = countdown.text_content()
    expect(countdown).not_to_have_text(str(before))
    waits = timeline.locator("svg.strip rect.is-waiting_retry").bounding_box()
    drawing = timeline.locator("svg.strip").bounding_box()
    assert waits is not None
    assert drawing is not None
    assert waits["width"] > 0.95 * drawing["width"]

    window.button("Retry now").click()
    expect(timeline).to_contain_text("Attempt 2")
    expect(window.page.locator(".headline .badge")).to_have_text("Succeeded")
    expect(window.button("Cancel")).to_have_count(0)


def test_an_operation_is_paused_with_a_reason_and_an_end(window: Window, seen: System, key: str) -> None:
    operation_id = seen.accepted(key, "/echo", delay_seconds=3_600, deadline_seconds=60)
    seen.until(operation_id, "scheduled")
    window.open(f"operations/{operation_id}")
    expect(window.card("Timeline")).to_contain_text("begins in")
    expect(window.card("About")).to_contain_text(re.compile(r"Begins.* · in "))
    window.button("Pause").click()
    window.dialog().get_by_label("Why").fill("the supplier moves")
    window.dialog().get_by_label("For how many seconds").fill("600")
    window.dialog().get_by_label("Deadline").select_option("stops while it is paused")
    window.dialog().get_by_role("button", name="Pause it").click()
    expect(window.page.locator(".headline")).to_contain_text(re.compile(r"goes on in (9|10) min"))
    expect(window.card("Actions")).to_contain_text("the supplier moves")
    assert seen.until(operation_id, "paused")["actions"][-1]["reason"] == "the supplier moves"
    window.button("Resume").click()
    expect(window.page.locator(".headline .badge")).to_have_text("Scheduled")


def test_an_operation_is_changed_while_it_waits_and_while_it_is_held(
    window: Window, seen: System, key: str
) -> None:
    operation_id = seen.accepted(key, "/fail/9", dependency="patient")
    seen.until(operation_id, "waiting_retry")
    window.open(f"operations/{operation_id}")
    window.button("Change").click()
    window.dialog().get_by_label("Priority").select_option("low")
    window.dialog().get_by_role("button", name="Change").press("Enter")
    expect(window.card("Actions")).to_contain_text('{"priority":"low"}')
    assert seen.until(operation_id, "waiting_retry")["priority"] == "low"
    seen.client.post(f"/api/operations/{operation_id}/pause", json={}).raise_for_status()
    window.button("Change and resume").click()
    window.dialog().get_by_label("Attempts, at most").fill("2")
    window.dialog().get_by_label("First wait, in seconds").fill("0.5")
    window.dialog().get_by_label("Deadline, in seconds from then on").fill("0")
    window.dialog().get_by_label("Why").fill("it is back")
    window.dialog().get_by_role("button", name="Change and resume").click()
    expect(window.card("Actions")).to_contain_text("it is back")
    changed = seen.status(operation_id)["actions"][-1]["after"]
    assert changed == {"retry": {"max_attempts": 2, "initial_seconds": 0.5}, "deadline_seconds": 0}
    seen.client.post(f"/api/operations/{operation_id}/cancel").raise_for_status()


def test_what_its_policy_holds_says_what_becomes_of_it(window: Window, seen: System, key: str) -> None:
    policy = {"max_attempts": 1, "on_exhausted": "hold", "hold_seconds": 600}
    operation_id = seen.accepted(key, "/fail/9", retry=policy)
    seen.until(operation_id, "paused")
    window.open(f"operations/{operation_id}")
    expect(window.page.locator(".headline")).to_contain_text(re.compile("becomes a dead letter in 9 min"))
    expect(window.card("Timeline")).to_contain_text("for somebody to resume it")
    seen.client.post(f"/api/operations/{operation_id}/cancel").raise_for_status()


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
    expect(window.card("Actions")).to_contain_text("Cancelled")


def test_an_operation_shows_the_steps_of_its_handler(window: Window, seen: System, key: str) -> None:
    body = {"handler": "book-trip", "input": {"max_attempts": 1, "hotel_attempts": 9}, "key": key}
    operation_id = seen.client.post("/api/operations", json=body).json()["operation_id"]
    seen.until(operation_id, "dead_lettered")
    window.open(f"operations/{operation_id}")
    steps = window.card("Steps")
    expect(steps.locator("tbody tr")).to_have_count(2)
    expect(steps.locator("tbody tr").first).to_contain_text(f"flight {key}~flight")
    expect(steps.locator("tbody tr").last).to_contain_text("Failed")


def test_text_of_callers_is_text(window: Window, seen: System, key: str) -> None:
    evil = "<img src=x onerror=alert(1)>"
    operation_id = seen.accepted(f"{key}<b>", "/echo", correlation_id=evil)
    seen.until(operation_id, "succeeded")
    window.open(f"operations/{operation_id}")
    expect(window.card("About")).to_contain_text(evil)
    expect(window.page.locator(".key")).to_have_text(f"{key}<b>")
    assert window.page.locator("main img").count() == 0


def test_text_of_callers_does_not_turn_the_text_around_it(window: Window, seen: System, key: str) -> None:
    """A right-to-left override reversed the rest of the sentence, its numbers included."""
    operation_id = seen.accepted(key, "/echo", correlation_id="a\u202eb")
    seen.until(operation_id, "succeeded")
    window.open(f"operations/{operation_id}")
    expect(window.card("About")).to_contain_text(r"a\u202eb")


@pytest.mark.long
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


@pytest.mark.long
def test_a_batch_shows_how_far_it_is_and_what_became_of_each_item(
    window: Window, seen: System, key: str
) -> None:
    items = [
        operation(f"{key}-good", "/echo"),
        operation(f"{key}-lost", "/echo", dependency="nobody"),
        operation(f"{key}-bad", "/status/422"),
    ]
    batch_id = seen.client.post("/api/batches", json={"items": items}).json()["batch_id"]
    window.open("batches")
    window.page.get_by_role("link", name=batch_id).click()
    expect(window.page.locator(".batch-progress")).to_contain_text("3 of 3 ended (100 %)")
    expect(window.page.locator(".figures")).to_have_text(re.compile("1succeeded.*2dead lettered"))
    expect(window.page.locator("main")).to_contain_text(
        "It counts as failed: of 3 items 2 became dead letters, and it tolerates none."
    )
    rows = window.page.get_by_role("table", name="Items").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("UnknownDependency")
    expect(rows.nth(2)).to_contain_text("Succeeded")
    window.page.get_by_label("Key or error").fill("422")
    window.page.get_by_label("Key or error").press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(f"{key}-bad")
    window.page.get_by_label("Key or error").fill("")
    window.page.get_by_label("Key or error").press("Enter")
    window.page.get_by_label("State").select_option("succeeded")
    expect(rows).to_have_count(1)
    rows.nth(0).get_by_role("link", name=f"{key}-good").click()
    expect(window.page.locator(".headline .badge")).to_have_text("Succeeded")


@pytest.mark.long
def test_a_saga_shows_what_was_undone_and_leads_to_its_operations(
    window: Window, seen: System, key: str
) -> None:
    reserve = {
        "operation": operation(f"{key}-do", "/echo"),
        "compensation": operation(f"{key}-undo", "/echo"),
    }
    steps = [
        {"name": "reserve", **reserve},
        {"name": "charge", "operation": operation(f"{key}-x", "/status/402")},
        {"name": "ship", "operation": operation(f"{key}-z", "/echo")},
    ]
    saga_id = seen.client.post("/api/sagas", json={"steps": steps}).json()["saga_id"]
    window.open("sagas")
    expect(window.page.get_by_role("row").filter(has_text=saga_id)).to_contain_text("reserve")
    window.page.get_by_label("Find", exact=True).fill(saga_id)
    window.page.get_by_label("Find", exact=True).press("Enter")
    expect(window.page.locator(".headline .badge")).to_have_text("Undone: charge was refused (402)")
    lines = window.card("Steps").locator("li")
    expect(lines.nth(0)).to_have_text(re.compile(r"Undone reserve.*undone by its compensation Succeeded"))
    expect(lines.nth(1)).to_have_text(re.compile(r"Dead lettered charge.*status 402"))
    expect(lines.nth(1).get_by_role("link", name="Its dead letter, to replay it")).to_be_visible()
    expect(lines.nth(2)).to_have_text("Not run ship")
    lines.nth(0).get_by_role("link", name="its compensation").click()
    expect(window.page.locator(".key")).to_have_text(f"{key}-undo")


def test_a_compensated_saga_is_restarted_from_its_page(window: Window, seen: System, key: str) -> None:
    steps = [
        {"name": "reserve", "operation": operation(f"{key}-do", "/echo")},
        {"name": "charge", "operation": operation(f"{key}-x", "/status/402")},
    ]
    saga_id = seen.client.post("/api/sagas", json={"steps": steps}).json()["saga_id"]
    window.open(f"sagas/{saga_id}")
    window.page.get_by_role("button", name="Restart…").click()
    dialog = window.page.get_by_role("dialog")
    dialog.get_by_label("From").select_option("charge")
    dialog.get_by_label("Why").fill("mended")
    dialog.get_by_role("button", name="Restart it").click()
    expect(window.card("Restarts").locator("li")).to_contain_text("Ran charge again")
    expect(window.card("Restarts").locator("li")).to_contain_text("mended")
    window.page.set_viewport_size({"width": 390, "height": 900})
    expect(window.card("Steps").get_by_role("link", name="charge").first).to_have_attribute(
        "title", re.compile("charge")
    )
    assert window.page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_compensation_that_waits_for_a_circuit_says_so(window: Window, seen: System, key: str) -> None:
    seen.client.post("/api/circuits/switched/open", json={"reason": "a test"}).raise_for_status()
    undo = operation(f"{key}-undo", "/echo", dependency="switched")
    steps = [
        {"name": "reserve", "operation": operation(f"{key}-do", "/echo"), "compensation": undo},
        {"name": "charge", "operation": operation(f"{key}-x", "/status/402")},
    ]
    saga_id = seen.client.post("/api/sagas", json={"steps": steps}).json()["saga_id"]
    window.open(f"sagas/{saga_id}")
    reserve = window.card("Steps").locator("li").first
    expect(reserve).to_contain_text("to be undone by its compensation Waits for the circuit")
    expect(reserve).to_contain_text("the circuit is held open: a test; next probe in")
    seen.client.post("/api/circuits/switched/close", json={"reason": "done"}).raise_for_status()
    expect(window.page.locator(".headline .badge")).to_have_text("Undone: charge was refused (402)")


def test_a_new_app_offers_a_first_step_that_works(browser: Browser, target: Target, tmp_path: Path) -> None:
    system = System(tmp_path, target, DEPENDENCIES_FILE=str(ROOT / "dependencies.toml"))
    with system.running(), Window(browser, system.url, bypass_csp=True) as window:
        for view in ("", "operations", "batches", "sagas"):
            window.open(view)
            assert (view, window.violations()) == (view, [])
        window.open()
        expect(window.card("Operations")).to_contain_text("No operations in this period.")
        window.button("Send a test operation").click()
        expect(window.dialog().get_by_label("Path")).to_have_value("/fail/2")
        window.button("Send it").click()
        expect(window.card("Timeline")).to_contain_text("Attempt 1")
        expect(window.page.locator(".headline .badge")).to_have_text(
            re.compile("Waits for a retry|Succeeded")
        )


def test_a_long_key_is_cut_and_its_title_has_the_whole_of_it(
    browser: Browser, seen: System, key: str
) -> None:
    long_key = f"{key}-{'long' * 50}"[:250]
    seen.until(seen.accepted(long_key, "/echo"), "succeeded")
    for size in (WIDE, NARROW):
        with Window(browser, seen.url, size=size) as window:
            window.open(f"operations?key={long_key}")
            link = window.page.get_by_role("link", name=long_key)
            assert long_key in str(link.get_attribute("title"))
            box = link.bounding_box()
            assert box is not None
            assert (box["height"] < 30, box["width"] < 380) == (True, True)
            tab = window.page.locator("#tabs a[aria-current]")
            expect(tab).to_be_in_viewport(ratio=1)
            end = link.locator("span").last
            expect(end).to_have_text(long_key[-10:])
            end.scroll_into_view_if_needed()  # Down, past the filters; the page is no wider than the window.
            expect(end).to_be_in_viewport(ratio=1)
            assert copied(window, link) == long_key
            assert window.overflow() == 0
            if size is WIDE:
                expect(window.page.get_by_role("columnheader", name="Accepted")).to_be_in_viewport()


def copied(window: Window, text: Locator) -> str:
    """What the clipboard gets when a person selects a text and copies it."""
    text.evaluate("element => getSelection().selectAllChildren(element)")
    put: str = window.page.evaluate(
        """() => {
            const event = new ClipboardEvent("copy", {clipboardData: new DataTransfer(), cancelable: true});
            document.dispatchEvent(event);
            return event.clipboardData.getData("text/plain");
        }"""
    )
    return put


def test_a_key_is_whole_where_nothing_else_needs_the_room(window: Window, seen: System) -> None:
    long_key = "settlement-of-the-region-2026-11-25"
    items = [{"dependency": "flaky", "request": {"method": "POST", "path": "/echo"}}]
    seen.client.post("/api/batches", json={"items": items, "key": long_key}).raise_for_status()
    window.open(f"batches?key={long_key}")
    head = window.page.get_by_role("link", name=long_key).locator(".cut-head")
    assert head.evaluate("head => head.scrollWidth - head.clientWidth") <= 0


def test_operations_fit_the_window_with_their_correlation(browser: Browser, seen: System, key: str) -> None:
    long_name = f"{key}-{'long' * 20}"
    operation_id = seen.accepted(long_name, "/status/422", correlation_id=f"order-{long_name}")
    seen.until(operation_id, "dead_lettered")
    for width in (1440, 1024):
        with Window(browser, seen.url, size=(width, 900)) as window:
            window.open("operations")
            table = window.page.locator(".table").first
            assert table.evaluate("table => table.scrollWidth - table.clientWidth") == 0
            if width == 1440:
                box = table.bounding_box()
                assert box is not None
                assert box["width"] > 0.95 * width
                window.page.get_by_role("link", name=f"order-{long_name}").click()
                expect(window.page.locator("tbody tr")).to_have_count(1)
                expect(window.page.get_by_label("Correlation id")).to_have_value(f"order-{long_name}")


def test_a_lag_over_the_threshold_of_its_alert_is_an_alarm(window: Window) -> None:
    def late(route: Route) -> None:
        overview = route.fetch().json()
        event = {"event_id": "op-1.1", "operation_id": "op-1", "type": "late", "state": "pending"}
        oldest = event | {"pending_since": "2026-01-01T00:00:00Z", "created_at": "2026-01-01T00:00:00Z"}
        route.fulfill(json=overview | {"outbox": overview["outbox"] | {"pending": 1, "oldest": oldest}})

    window.open()
    lag = window.page.locator(".figure").filter(has_text="outbox lag")
    expect(lag).not_to_have_class(re.compile("is-dead_lettered"))
    window.page.route("**/api/overview?**", late)
    window.page.reload()
    expect(lag).to_have_class(re.compile("is-dead_lettered"))
    expect(lag).to_contain_text("over 5 min")
