import subprocess
import sys
from pathlib import Path

import pytest

from scripts.processes import ROOT
from tests.support.browser import chromium

pytestmark = pytest.mark.long


@pytest.mark.timeout(400)
def test_no_page_scrolls_sideways_and_the_sidebar_shows_at_most_twenty_entries(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "docs", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True)
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 50
    with chromium() as browser:
        for width in (1440, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            wide, crowded = [], []
            for file in pages:
                page.goto(file.as_uri(), wait_until="domcontentloaded")
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    wide.append(file.name)
                links = page.locator(".sidebar-tree a.reference").all()
                if sum(link.is_visible() for link in links) > 20:
                    crowded.append(file.name)
            assert (wide, crowded) == ([], [])
