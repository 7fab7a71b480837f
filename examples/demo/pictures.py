"""`make screenshots`: an outage, a quota, refusals and a saga on the real app, and pictures of its dashboard.

The pictures go to `docs/pictures/`, where README and documents show them. `views.json` there has a digest of
each view, so that a test finds a picture that is older than its view.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, sync_playwright

from examples.demo.stage import Stage, operation, set_stage
from scripts.processes import ROOT, eventually, find_chromium

PICTURES: Final = ROOT / "docs" / "pictures"
DIGESTS: Final = PICTURES / "views.json"
VIEWS: Final = ROOT / "packages" / "console" / "durable_retry_console" / "dashboard" / "page" / "views"
_FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
_STORY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture, taken in light and in dark.

    Attributes:
        name: The name of its files, without scheme and ending.
        view: The file of the dashboard whose view it shows.
        height: In pixels; the width is that of a page in a browser's window.
    """

    name: str
    view: str
    height: int = 900

    @property
    def digest(self) -> str:
        """The view as it is now."""
        return sha256((VIEWS / self.view).read_bytes()).hexdigest()[:16]

    def path(self, scheme: str) -> Path:
        """Return the file of a colour scheme, `light` or `dark`."""
        return PICTURES / f"{self.name}-{scheme}.png"


OPERATION: Final = Picture("operation", "operations.js", 730)
OVERVIEW: Final = Picture("overview", "overview.js")
CIRCUIT: Final = Picture("circuit", "circuits.js")
DEAD_LETTERS: Final = Picture("dead-letters", "dead_letters.js", 640)
SAGA: Final = Picture("saga", "workflows.js", 640)
TAKEN: Final = (OPERATION, OVERVIEW, CIRCUIT, DEAD_LETTERS, SAGA)
_SCHEMES: Final = ("light", "dark")
_WIDTH: Final = 1280


def main() -> int:
    """Play the story and take the pictures."""
    program = find_chromium()
    if program is None:
        print("no Chromium on this machine: scripts/chromium.sh installs Debian's", file=sys.stderr)
        return 1
    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="durable-retry-pictures-") as folder,
        set_stage(Path(folder)) as stage,
        sync_playwright() as playwright,
    ):
        places = _play(stage)
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        for picture, path in places:
            _take(browser, f"{stage.api.base_url}/api/dashboard#/{path}", picture)
        browser.close()
    DIGESTS.write_text(json.dumps({picture.name: picture.digest for picture in TAKEN}, indent=2) + "\n")
    return 0


def _play(stage: Stage) -> Sequence[tuple[Picture, str]]:
    """Let an operation succeed at its third attempt, and bring others into trouble; return the pictures."""
    charge = stage.post("payments", "charge-1000", "/fail/2").json()["operation_id"]
    for number in range(1, 25):
        stage.post("payments", f"charge-{1000 + number}", "/echo" if number % 4 else "/fail/1")
    for number in range(1, 6):
        stage.post("payments", f"refund-{number}", "/status/422")
    for number in range(1, 4):
        stage.post("mailer", f"receipt-{number}", "/status/401")
    saga = stage.api.post("/api/sagas", json=_saga()).raise_for_status().json()["saga_id"]
    stage.post("mailer", "receipt-9", "/throttle/9?retry_after=120")
    stage.warehouse.put("/outage/on").raise_for_status()
    orders = [stage.post("warehouse", f"order-{number}", "/echo").json() for number in range(4711, 4723)]
    eventually(lambda: _is_over(stage, saga), "the saga ends", within_seconds=_STORY_SECONDS)
    eventually(
        lambda: (
            stage.status(charge)["status"] == "succeeded" and any(_has_probed(stage, each) for each in orders)
        ),
        "the charge has succeeded, and an order has probed the circuit",
        within_seconds=_STORY_SECONDS,
    )
    return [
        (OPERATION, f"operations/{charge}"),
        (CIRCUIT, "circuits/warehouse"),
        (DEAD_LETTERS, "dead-letters"),
        (SAGA, f"sagas/{saga}"),
        (OVERVIEW, ""),
    ]


def _saga() -> dict[str, Any]:
    def step(name: str, path: str) -> dict[str, Any]:
        undone = operation("payments", f"undo-{name}", "/echo")
        return {"name": name, "operation": operation("payments", name, path), "compensation": undone}

    steps: Iterator[dict[str, Any]] = (
        step(name, path)
        for name, path in (("reserve", "/echo"), ("charge", "/fail/1"), ("ship", "/status/422"))
    )
    return {"steps": list(steps)}


def _is_over(stage: Stage, saga_id: str) -> bool:
    document = stage.api.get(f"/api/sagas/{saga_id}").raise_for_status().json()
    return document["status"] not in {"pending", "running", "compensating"}


def _has_probed(stage: Stage, accepted: dict[str, Any]) -> bool:
    """Return whether an operation was tried again and is held up by its circuit."""
    document = stage.status(accepted["operation_id"])
    return bool(document["status"] == "waiting_circuit" and document["attempt_count"] > 1)


def _take(browser: Browser, url: str, picture: Picture) -> None:
    for scheme in _SCHEMES:
        page = browser.new_page(
            viewport={"width": _WIDTH, "height": picture.height},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
        )
        page.goto(url)
        page.locator("main h1").wait_for(state="attached")
        page.locator("main .loading").wait_for(state="detached")
        page.locator("main .loading-part").first.wait_for(state="detached")
        page.screenshot(path=picture.path(scheme))
        page.close()
        print(picture.path(scheme).relative_to(ROOT))


if __name__ == "__main__":
    raise SystemExit(main())
