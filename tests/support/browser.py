import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from types import TracebackType
from typing import Any, Self

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from scripts.processes import find_chromium

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, MIDDLE, NARROW = (1440, 900), (1024, 768), (390, 844)
PATIENCE_MS = 20_000
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a new profile; skips where there is none, unless BROWSER_TESTS says it must be there."""
    program = find_chromium()
    if program is None:
        reason = "no Chromium on this machine: scripts/chromium.sh installs Debian's"
        if os.environ.get("BROWSER_TESTS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Window:
    """One window on the dashboard, in a context of its own. Leaving it checks that nothing went wrong inside.

    Attributes:
        page: What Playwright drives.
        complaints: Of the console and of the page, empty as they must be.
    """

    def __init__(self, browser: Browser, url: str, *, size: tuple[int, int] = WIDE, **options: Any) -> None:
        width, height = size
        self.url = url
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda line: self._hear(line.type, line.text))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.context.close()
        if kind is None:
            assert self.complaints == []

    def open(self, path: str = "") -> Self:
        """Goes to a view and waits until it shows what it is about."""
        self.page.goto(f"{self.url}/api/dashboard#/{path}")
        self.page.locator("main h1").wait_for(state="attached")
        self.page.locator("main .loading").wait_for(state="detached")
        return self

    def card(self, title: str) -> Locator:
        return self.page.locator("section.card").filter(has=self.page.get_by_role("heading", name=title))

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def answer(self, button: str, fields: Mapping[str, str] = {}, *, badge: str | None = None) -> None:
        """Fill fields of the dialog in by their labels, press a button, and expect a page with a badge."""
        for label, text in fields.items():
            self.dialog().get_by_label(label).fill(text)
        self.dialog().get_by_role("button", name=button).click()
        if badge is not None:
            expect(self.page.locator(".headline .badge")).to_have_text(badge)

    def enter(self, label: str, text: str) -> None:
        self.page.get_by_label(label).fill(text)
        self.page.get_by_label(label).press("Enter")

    def violations(self) -> list[str]:
        """What axe finds wrong with the page as it is; the context must be made with bypass_csp."""
        self.page.evaluate(AXE)
        found = self.page.evaluate("async () => (await axe.run()).violations")
        return [f"{one['id']}: {[node['html'] for node in one['nodes']][:3]}" for one in found]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return width

    def cut_tables(self) -> list[str]:
        """The tables that are wider than their place, so that one scrolls sideways to read a row."""
        found: list[str] = self.page.locator("main .table").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.innerText)"
        )
        return found

    def _hear(self, kind: str, text: str) -> None:
        # Chromium itself writes a line for each answer that is no success; the page shows those to a person.
        if kind in {"error", "warning"} and not text.startswith("Failed to load resource"):
            self.complaints.append(text)
