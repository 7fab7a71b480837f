"""What holds for every view: a lost connection, the keyboard, accessibility, colours, the key."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Request, Route, expect

from durable_retry.base.json_forms import to_rfc3339
from scripts.processes import eventually
from tests.e2e.dashboard.conftest import SETTINGS
from tests.support.app import System, dead_letter, operation
from tests.support.browser import MIDDLE, NARROW, WIDE, Window
from tests.support.target import Target


@pytest.mark.long
def test_a_lost_connection_is_shown_with_its_time_and_found_again(window: Window) -> None:
    window.open("operations?key=fine")
    window.context.set_offline(offline=True)
    banner = window.page.locator("#banner")
    expect(banner).to_contain_text(re.compile(r"not answered since \d\d:\d\d:\d\d"))
    expect(window.page.get_by_role("link", name="fine")).to_be_visible()  # what was known stays
    window.context.set_offline(offline=False)
    expect(banner).to_be_hidden()
    expect(window.page.locator("#live-text")).to_have_text("Live")


@pytest.mark.long
def test_a_part_that_is_missing_is_named_beside_those_that_work(window: Window) -> None:
    def without_outbox(route: Route) -> None:
        overview = route.fetch().json()
        unavailable = {"outbox": "ServiceRequestError"}
        route.fulfill(json=overview | {"outbox": None, "unavailable": unavailable})

    window.page.route("**/api/overview?**", without_outbox)
    window.open()
    expect(window.card("Outbox")).to_contain_text("could not read it (ServiceRequestError)")
    expect(window.card("Dependencies")).to_contain_text("patient")


def test_a_worker_that_read_a_part_earlier_than_another_does_not_take_it_back(window: Window) -> None:
    seconds_ago = iter([20, 60])

    def dated(route: Route) -> None:
        overview = route.fetch().json()
        ago = next(seconds_ago, 60)
        overview["dead_letters"] |= {"open": 900 - ago}
        overview["outbox"] |= {"failed": ago}
        as_of = {"dead_letters": to_rfc3339(datetime.now(UTC) - timedelta(seconds=ago))}
        route.fulfill(json=overview | {"as_of": as_of})

    window.page.route("**/api/overview?**", dated)
    window.open()
    verdict = window.page.locator(".verdict")
    expect(verdict).to_contain_text("880 open dead letters")
    expect(verdict).to_contain_text("60 events not sent")
    expect(verdict).to_contain_text("880 open dead letters")
    expect(window.card("Dead letters by cause")).to_contain_text("as of")


HIDE = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"


def asked_in(window: Window, seconds: int) -> list[str]:
    """The requests of so many seconds of the page's own clock, each answered before it goes on."""
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    window.page.on("request", note)
    for _ in range(seconds):
        window.page.clock.run_for(1_000)
        window.page.wait_for_load_state("networkidle")
    window.page.remove_listener("request", note)
    return asked


@pytest.mark.parametrize(
    ("view", "most"),
    [
        pytest.param("", 6, id="overview"),
        pytest.param("operations", 6, id="operations", marks=pytest.mark.long),
        pytest.param("circuits", 14, id="circuits", marks=pytest.mark.long),
        pytest.param("dead-letters", 18, id="dead-letters", marks=pytest.mark.long),
        pytest.param("outbox", 6, id="outbox", marks=pytest.mark.long),
    ],
)
def test_a_page_asks_seldom_and_a_hidden_one_never(
    browser: Browser, seen: System, view: str, most: int
) -> None:
    """In 30 s an overview made 54 requests once, each an execution in Azure."""
    with Window(browser, seen.url) as window:
        window.page.clock.install()
        window.open(view)
        assert 1 <= len(asked_in(window, 30)) <= most
        window.page.evaluate(HIDE % "true")
        eventually(lambda: not asked_in(window, 5), "what a busy machine had not sent yet is sent")
        assert asked_in(window, 60) == []
        window.page.evaluate(HIDE % "false")
        with window.page.expect_response(re.compile("/api/")):
            window.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            window.page.clock.run_for(1)


def test_what_is_known_is_not_sent_again_and_asked_for_less_often(browser: Browser, seen: System) -> None:
    # The list of what was sent follows the end of its operation.
    eventually(lambda: seen.client.get("/api/outbox?status=sent").json()["items"], "an event was sent")
    with Window(browser, seen.url) as window:
        answers: list[int] = []
        window.page.clock.install()
        window.open("outbox?status=sent")
        expect(window.page.locator("tbody tr").first).to_be_visible()
        # What the page asks for once may be answered later than the list.
        window.page.wait_for_load_state("networkidle")
        window.page.on("response", lambda answer: answers.append(answer.status))
        assert len(asked_in(window, 60)) <= 6
        assert set(answers) == {304}


def test_the_keyboard_is_enough(window: Window, seen: System) -> None:
    window.open()
    page = window.page
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Find", exact=True)).to_be_focused()
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


def test_keys_move_through_the_rows_and_are_listed(window: Window, seen: System) -> None:
    assert len(seen.client.get("/api/operations").json()["items"]) > 1
    window.open("operations")
    page = window.page
    expect(page.locator("tbody tr").nth(1)).to_be_visible()
    for key, row in (("j", 0), ("j", 1), ("k", 0), ("k", 0)):
        page.keyboard.press(key)
        expect(page.locator("tbody tr").nth(row).locator("a").first).to_be_focused()
    page.keyboard.press("?")
    expect(window.dialog()).to_contain_text("next row")
    page.keyboard.press("Escape")
    expect(window.dialog()).to_have_count(0)


def test_a_filter_suggests_the_dependencies(window: Window) -> None:
    window.open("operations")
    expect(window.page.locator("#known-dependency option[value=patient]")).to_have_count(1)


VIEWS = (
    "",
    "operations",
    "operations?q=hopeless",
    "find?q=hopeless",
    "operations/{operation}",
    "dead-letters",
    "dead-letters/{dead_letter}",
    "dead-letters/{dead_letter}?edit=1",
    "causes/{group}",
    "bulk-actions",
    "bulk-actions/new",
    "bulk-actions/new?action=cancel",
    "bulk-actions/new?patch=%5B%7B%22op%22%3A%22remove%22%2C%22path%22%3A%22%2Frequest%2Fjson%2Famount%22%7D%5D",
    "bulk-actions/{action}",
    "circuits",
    "circuits/patient",
    "metrics",
    "metrics?dependency=flaky&minutes=15",
    "outbox?status=sent",
    "outbox/{event}",
    "alerts",
    "activity",
    "policy",
    "batches",
    "batches/{batch}",
    "lanes",
    "lanes?blocked=true",
    "lanes/{lane}",
    "lanes/nobody",
    "sagas",
    "sagas/{saga}",
    "operations/unknown",
)


@pytest.fixture(scope="module")
def names(seen: System) -> Iterator[dict[str, str]]:
    """Ids of one thing of each kind; in the lane, which is blocked, one waits to the end of these tests."""
    for key, path, state in (("blocks", "/status/422", "dead_lettered"), ("waits", "/echo", "waiting_order")):
        waits = seen.accepted(f"{key}-in-its-lane", path, order_key="lane-of-views")
        seen.until(waits, state)
    yield {
        "operation": seen.client.get("/api/operations?status=waiting_retry").json()["items"][0][
            "operation_id"
        ],
        "batch": seen.client.post("/api/batches", json={"items": [operation("in-a-batch", "/echo")]}).json()[
            "batch_id"
        ],
        "saga": seen.client.post(
            "/api/sagas", json={"steps": [{"name": "one", "operation": operation("in-a-saga", "/echo")}]}
        ).json()["saga_id"],
        "lane": "lane-of-views",
        "dead_letter": seen.client.get("/api/dead-letters?status=open").json()["items"][0]["id"],
        "group": seen.client.get("/api/dead-letters/groups").json()["items"][0]["group"],
        "action": seen.client.post(
            "/api/bulk-actions", json={"action": "archive", "filter": {"group": "none"}}
        ).json()["action_id"],
        "event": seen.client.get("/api/outbox?status=sent").json()["items"][0]["event_id"],
    }
    seen.client.post(f"/api/operations/{waits}/cancel").raise_for_status()
    seen.until(waits, "cancelled")


@pytest.mark.parametrize(
    ("colours", "size"),
    [
        pytest.param("light", WIDE, id="light-wide"),
        pytest.param("dark", WIDE, id="dark-wide", marks=pytest.mark.long),
        pytest.param("light", MIDDLE, id="light-middle", marks=pytest.mark.long),
        pytest.param("dark", MIDDLE, id="dark-middle", marks=pytest.mark.long),
        pytest.param("light", NARROW, id="light-narrow", marks=pytest.mark.long),
        pytest.param("dark", NARROW, id="dark-narrow", marks=pytest.mark.long),
    ],
)
def test_every_view_passes_the_accessibility_checker_and_fits_the_window(
    browser: Browser, seen: System, names: dict[str, str], size: tuple[int, int], colours: str
) -> None:
    with Window(browser, seen.url, size=size, color_scheme=colours, bypass_csp=True) as window:
        for view in VIEWS:
            window.open(view.format(**names) if "{" in view else view)
            assert (view, window.violations()) == (view, [])
            assert (view, window.overflow(), window.cut_tables()) == (view, 0, [])
        window.open(f"operations/{names['operation']}")
        window.button("Change").click()
        expect(window.dialog().get_by_label("Why")).to_be_focused()
        assert (window.violations(), window.overflow()) == ([], 0)


REACHABLE = """() => [...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter(one => one.tabIndex >= 0 && !one.disabled && one.checkVisibility({visibilityProperty: true}))
  .map((one, number) => { one.dataset.reach = number; return one.outerHTML.slice(0, 120); })"""

FOCUSED = """() => {
  const one = document.activeElement;
  const { outlineStyle, boxShadow } = getComputedStyle(one);
  return {reach: one.dataset.reach ?? null, shows: outlineStyle !== 'none' || boxShadow !== 'none'};
}"""


@pytest.mark.long
@pytest.mark.parametrize("size", [pytest.param(WIDE, id="wide"), pytest.param(NARROW, id="narrow")])
def test_everything_in_every_view_is_reached_by_the_tab_key_and_shows_it(
    browser: Browser, seen: System, names: dict[str, str], size: tuple[int, int]
) -> None:
    with Window(browser, seen.url, size=size) as window:
        for view in VIEWS:
            window.open(view.format(**names) if "{" in view else view)
            # A hidden page asks for nothing, so that nothing is drawn anew in place of what is marked here.
            window.page.evaluate(HIDE % "true")
            window.page.wait_for_load_state("networkidle")
            every = window.page.evaluate(REACHABLE)
            window.page.evaluate("document.activeElement.blur()")
            reached: dict[str, bool] = {}
            # Once around; a date and time has a stop for each of its parts.
            for _ in range(len(every) + 5 + 8 * sum("datetime-local" in html for html in every)):
                if len(reached) == len(every):
                    break
                window.page.keyboard.press("Tab")
                focused = window.page.evaluate(FOCUSED)
                if focused["reach"] is not None:
                    # The calendar within a date marks itself, and not the date around it.
                    reached[focused["reach"]] = reached.get(focused["reach"], False) or focused["shows"]
            missed = [html for number, html in enumerate(every) if not reached.get(str(number))]
            assert (view, missed) == (view, [])
            window.page.goto("about:blank")


def test_colours_follow_the_system_until_somebody_chooses(browser: Browser, seen: System) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with Window(browser, seen.url, color_scheme="dark") as window:
        window.open("policy")
        dark = window.page.evaluate(background)
        window.page.locator("#theme-button").click()
        assert window.page.evaluate(background) != dark
        window.page.reload()
        expect(window.page.locator("#theme-button")).to_have_text("Colours: light")


def test_a_key_is_asked_for_kept_in_the_tab_and_sent(
    browser: Browser, target: Target, tmp_path: Path
) -> None:
    system = System(tmp_path, target, DEPENDENCIES_FILE=str(SETTINGS))
    system.server.command.append("--auth")
    with system.running(), Window(browser, system.url) as window:
        window.open("circuits")
        expect(window.page.locator("#banner")).to_contain_text("needs a function key")
        window.button("Enter a key").click()
        keys = json.loads((tmp_path / "data" / "keys.json").read_text())
        window.page.get_by_label("Key", exact=True).fill(keys["function"])
        window.button("Use it").click()
        expect(window.page.locator(".healthy a")).to_have_count(11)
        expect(window.page.locator("#banner")).to_be_hidden()
        assert keys["function"] not in window.page.evaluate("JSON.stringify({...localStorage}) + location")


def test_a_known_file_is_not_sent_again(seen: System) -> None:
    first = seen.client.get("/api/dashboard/app.js")
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    again = seen.client.get("/api/dashboard/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    redirected: httpx.Response = seen.client.get("/api/dashboard/", follow_redirects=True)
    assert (redirected.status_code, redirected.url.path) == (200, "/api/dashboard")
