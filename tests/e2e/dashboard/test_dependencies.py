import re
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Route, expect

from scripts.processes import eventually
from tests.support.app import System
from tests.support.browser import Window

pytestmark = pytest.mark.long


def test_a_circuit_is_held_open_tried_and_closed_with_reasons_that_are_kept(
    window: Window, seen: System, key: str
) -> None:
    window.open("circuits/held")
    window.button("Hold open").click()
    window.answer("Hold open")
    expect(window.dialog()).to_be_visible()  # a reason is missing
    window.answer("Hold open", {"Why?": "maintenance", "For how many seconds?": "600"}, badge="Held open")
    expect(window.page.locator(".headline")).to_contain_text("set by hand, ends in 9 min")
    expect(window.card("Manual changes")).to_contain_text("maintenance")

    # A worker may have a copy of the circuit from before.
    held = eventually(lambda: waiting_for_circuit(seen, key), "an operation waits for the circuit")
    row = window.card("Waits for the circuit").locator(f"li[data-key={held}]")
    row.get_by_role("button", name="Try once").click()
    expect(window.dialog()).to_contain_text("The circuit does not count it and stays as it is.")
    window.answer("Send it", {"Why?": "it may work again"})
    actions = seen.until(held, "succeeded")["actions"]
    assert [(each["action"], each["reason"]) for each in actions] == [("try", "it may work again")]
    expect(window.page.locator(".headline .badge")).to_have_text("Held open")

    window.button("Close").click()
    window.answer("Close", {"Why?": "done"}, badge="Closed")
    trail = seen.client.get("/api/circuits/held").json()["audit"]
    assert [entry["reason"] for entry in trail] == ["done", "maintenance"]


def test_the_open_circuit_of_a_limit_key_is_said_beside_the_dependencys_own_closed_one(
    window: Window, seen: System, key: str
) -> None:
    change = {"reason": "revoked", "limit_key": key}
    seen.client.post("/api/circuits/tenants/open", json=change).raise_for_status()
    try:
        window.open("")
        expect(window.page.locator(".verdict")).to_contain_text(f"Open for limit keys: tenants ({key})")
        card = window.page.locator(".circuit[data-key=tenants]")
        expect(card.locator(".badge")).to_have_text("Open for 1 key")
        expect(card).to_contain_text(f"For {key}: held open by api since")
        card.click()
        expect(window.card("Limit keys")).to_contain_text(key)
        expect(window.card("Limit keys")).to_contain_text("Held open")
    finally:
        seen.client.post("/api/circuits/tenants/close", json=change).raise_for_status()


def test_the_pause_of_a_limit_key_whose_circuit_is_closed_is_said_and_ended_there(
    window: Window, seen: System, key: str
) -> None:
    asked = seen.accepted(f"{key}-1", "/throttle/1?retry_after=600", dependency="tenants", limit_key=key)
    seen.until(asked, "waiting_throttle")
    held = seen.accepted(f"{key}-2", "/echo", dependency="tenants", limit_key=key)
    seen.until(held, "waiting_throttle")
    window.open("")
    expect(window.page.locator(".verdict")).to_contain_text(f"Paused for limit keys: tenants ({key})")
    card = window.page.locator(".circuit[data-key=tenants]")
    expect(card.locator(".badge")).to_have_text("Paused for 1 key")
    expect(card).to_contain_text(f"For {key}: paused by 429 for {key} (Retry-After 600 s) until")
    card.click()
    row = window.page.get_by_role("table", name="Limit keys").get_by_role("row").filter(has_text=key)
    expect(row).to_contain_text("Paused by 429")
    row.get_by_role("button", name="End the pause").click()
    window.answer("End the pause", {"Why?": "renewed"})
    expect(row).to_have_count(0)

    seen.until(held, "succeeded")
    # The one that was asked to wait keeps to it.
    window.open(f"operations/{asked}")
    window.button("Retry now").click()
    seen.until(asked, "succeeded")


@pytest.mark.parametrize(
    ("share", "words"), [({}, "Everything is held"), ({"share": 0.1}, "Everything thaws")]
)
def test_a_hold_of_everything_is_said_first(window: Window, share: dict[str, float], words: str) -> None:
    hold = {"by": "ada", "since": "2026-11-21T09:00:00Z", "reason": "wrong amounts", "until": None, **share}

    def held(route: Route) -> None:
        answer = route.fetch()
        document = answer.json()
        for circuit in document["circuits"]:
            circuit["hold"] = hold
        route.fulfill(response=answer, json=document)

    window.page.route("**/api/overview?**", held)
    window.open("")
    verdict = window.page.locator(".verdict")
    expect(verdict).to_contain_text(re.compile(f"^{words} by ada since .*: wrong amounts"))
    expect(verdict).to_have_class(re.compile("is-bad"))


def test_a_refused_credential_is_said_first_with_the_limit_key_whose_it_is(
    window: Window, seen: System, key: str
) -> None:
    bodies: list[dict[str, Any]] = [{"dependency": "guarded"}, {"dependency": "tenants", "limit_key": key}]
    ids = [
        seen.accepted(f"{key}-{n}-{body['dependency']}", "/status/401", **body)
        for body in bodies
        for n in range(3)
    ]
    for each in ids:
        seen.until(each, "waiting_circuit")
    try:
        window.open("")
        verdict = window.page.locator(".verdict")
        expect(verdict).to_contain_text(f"Credential refused by guarded, tenants for {key}: set a new one")
        expect(verdict).to_have_class(re.compile("is-bad"))
        expect(verdict).not_to_contain_text("1 circuit open")
        expect(verdict).not_to_contain_text("Unhealthy")
        expect(verdict).not_to_contain_text("limit keys")
        card = window.page.locator(".circuit[data-key=guarded]")
        expect(card).to_contain_text("The credential is refused (401): set a new one")
        tenants = window.page.locator(".circuit[data-key=tenants]")
        expect(tenants).to_contain_text(f"For {key}: the credential is refused (401): set a new one")
        window.open("circuits/tenants")
        expect(window.card("Limit keys")).to_contain_text("The credential is refused (401)")
    finally:
        for each in ids:
            seen.client.post(f"/api/operations/{each}/cancel").raise_for_status()
        for body in bodies:
            change = {"reason": "a new one", "limit_key": body.get("limit_key")}
            answer = seen.client.post(f"/api/circuits/{body['dependency']}/reset", json=change)
            answer.raise_for_status()


def test_the_circuit_of_a_limit_key_has_a_page_and_its_switches(
    window: Window, seen: System, key: str
) -> None:
    window.open("circuits/tenants")
    window.button("Look up a key").click()
    window.dialog().get_by_label("Limit key", exact=True).fill(key)
    window.answer("Show its circuit")
    expect(window.page.get_by_role("heading", level=1)).to_have_text(f"tenants for {key}")
    window.button("Hold open").click()
    window.answer("Hold open", {"Why?": "revoked"}, badge="Held open")
    expect(window.card("Manual changes")).to_contain_text("revoked")
    expect(window.page.get_by_role("table", name="Outages")).to_contain_text(f"the circuit for {key} opened")

    window.page.get_by_role("link", name="The circuit of tenants").click()
    row = window.page.get_by_role("table", name="Limit keys").get_by_role("row").filter(has_text=key)
    row.get_by_role("button", name="Close").click()
    window.answer("Close", {"Why?": "a new credential"})
    expect(row).to_have_count(0)
    trail = seen.client.get("/api/circuits/tenants", params={"limit_key": key}).json()["audit"]
    assert [entry["reason"] for entry in trail] == ["a new credential", "revoked"]
    window.open(f"activity?q={key}")
    rows = window.page.get_by_role("table").locator("tbody tr")
    expect(rows.filter(has_text=f"asked to close the circuit for {key}")).to_have_count(1)
    rows.get_by_role("link", name="tenants").first.click()
    expect(window.page.get_by_role("heading", level=1)).to_have_text(f"tenants for {key}")


def waiting_for_circuit(system: System, key: str) -> str | None:
    """Post an operation for the dependency that is held; return its id if the circuit holds it up."""
    operation_id = system.accepted(f"{key}-{uuid4().hex}", "/echo", dependency="held")
    ends = {"waiting_circuit", "succeeded"}
    status = eventually(lambda: ends & {system.status(operation_id)["status"]} or None, "it is asked for")
    return operation_id if status == {"waiting_circuit"} else None


def test_a_dependency_that_fails_moves_its_bar(window: Window, seen: System, key: str) -> None:
    window.open("circuits")
    bar = window.page.locator(".circuit[data-key=flaky]").locator(".ratio-fill")
    seen.until(seen.accepted(f"{key}-0", "/fail/9"), "dead_lettered")
    expect(bar).not_to_have_css("width", "0px")
    before = bar.evaluate("bar => bar.style.width")
    for number in range(20):
        seen.accepted(f"{key}-well-{number}", "/echo")
    expect(bar).not_to_have_attribute("style", f"width: {before};")


def test_a_policy_is_previewed_and_its_address_can_be_shared(window: Window) -> None:
    window.open("policy?dependency=patient")
    expect(window.card("Waits")).to_contain_text("10 min")
    window.enter("Most attempts", "1")
    expect(window.card("Waits")).to_contain_text("One attempt, no wait.")
    assert "max_attempts=1" in window.page.url
    window.enter("First wait (s)", "-1")
    expect(window.page.get_by_role("status")).to_contain_text("/retry/initial_seconds")
    window.open("policy?dependency=(none)")
    window.page.get_by_label("Strategy").select_option("schedule")
    window.enter("Waits of a schedule (s)", "1, 90")
    expect(window.card("Waits")).to_contain_text("1 min 30 s")


def test_an_event_is_sent_again(window: Window) -> None:
    window.open("outbox?status=sent")
    row = window.page.get_by_role("row").filter(has_text="queue dashboard-events")
    row.get_by_role("button", name="Resend").click()
    expect(window.page.locator(".toast")).to_have_text("Sending it again.")


def test_an_event_shows_what_it_carries_how_often_it_was_tried_and_when_next(
    window: Window, seen: System, key: str
) -> None:
    event = {"type": "t", "dependency": "patient", "path": "/fail/9", "data": {"order": key, "token": "t-1"}}
    operation_id = seen.accepted(key, "/echo", on_success=[event])
    seen.until(operation_id, "succeeded")
    window.open(f"operations/{operation_id}")
    window.card("Follow-up events").get_by_role("link", name="t", exact=True).click()
    expect(window.card("Data")).to_contain_text(key)
    expect(window.card("Data")).not_to_contain_text("t-1")
    expect(window.card("Attempts")).to_contain_text("503")
    expect(window.page.locator(".headline time")).to_have_text(re.compile("in 9 min"))
    expect(window.card("About")).to_contain_text("patient")


def test_the_window_of_a_circuit_is_drawn_as_the_api_has_it(window: Window, seen: System, key: str) -> None:
    window.open("circuits/fragile")
    expect(window.card("Window")).to_contain_text("No calls in the last 30 s.")
    for number in range(2):
        seen.until(seen.accepted(f"{key}-{number}", "/echo", dependency="fragile"), "succeeded")
    seen.accepted(f"{key}-fails", "/fail/9", dependency="fragile")
    drawing = window.card("Window").get_by_role("img")
    expect(drawing).to_have_accessible_name(re.compile(r"3 calls, 1 failed \(33 %\)"))
    columns = drawing.locator("rect.is-dead_lettered")
    heights = columns.evaluate_all("all => all.map(one => Number(one.getAttribute('height')))")
    assert [height > 0 for height in heights].count(True) == 1
    assert len(heights) == 10


def test_an_open_circuit_shows_the_window_that_opened_it(window: Window, seen: System, key: str) -> None:
    for number in range(4):
        seen.accepted(f"{key}-{number}", "/fail/9", dependency="brittle")
    window.open("circuits/brittle")
    expect(window.page.locator(".headline .badge")).to_have_text("Open")
    opened = window.card("What opened it").get_by_role("img")
    expect(opened).to_have_accessible_name(re.compile(r"(\d) calls, \1 failed \(100 %\)"))
    outages = window.page.get_by_role("table", name="Outages").locator("tbody tr")
    expect(outages).to_have_count(1)
    expect(outages).to_contain_text("the last error: 503")
    expect(window.card("Waits for the circuit").get_by_role("link", name=f"{key}-0")).to_be_visible()
    expect(window.card("Window").get_by_text("Operations waiting").locator("..")).to_contain_text("4")
    window.open("circuits")
    expect(window.page.locator(".circuit").first).to_contain_text("brittle")  # unhealthy ones come first
