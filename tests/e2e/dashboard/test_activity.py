from playwright.sync_api import expect

from tests.support.app import System, dead_letter
from tests.support.browser import Window


def test_what_happened_is_one_link(window: Window, seen: System) -> None:
    found = dead_letter(seen, "activity-page")
    seen.client.post(f"/api/dead-letters/{found}/notes", json={"text": "asked the vendor"}).raise_for_status()
    seen.client.post(f"/api/dead-letters/{found}/archive").raise_for_status()
    window.open(f"activity?q={found}")
    rows = window.page.get_by_role("row").filter(has_text="the dead letter")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("archived the dead letter")
    expect(rows.nth(1)).to_contain_text("asked the vendor")
    window.page.get_by_label("Kind").select_option("bulk")
    expect(window.page.get_by_text("No entry matches.")).to_be_visible()
    assert "kind=bulk" in window.page.url
