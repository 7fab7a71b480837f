import re
import subprocess
from pathlib import Path

import pytest

from tools.processes import ROOT
from tools.run import build_parser, what_to_try

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def documents() -> list[str]:
    listed = subprocess.run(  # the repository's own, not a package's
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],  # noqa: S607 # git as it is found
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def readme_curl() -> str:
    """The first command in the README that calls the app."""
    blocks: list[str] = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return next(block for block in blocks if block.startswith("curl"))


@pytest.mark.parametrize("name", documents())
def test_every_link_in_a_document_leads_to_a_file(name: str) -> None:
    document = ROOT / name
    targets = [target for target in LINK.findall(document.read_text()) if "://" not in target]
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert missing == []


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = LINK.findall((folder / "README.md").read_text())
    assert sorted(index) == sorted(page.name for page in folder.glob("*.md") if page.name != "README.md")


def test_make_run_prints_the_curl_of_the_readme() -> None:
    def words(text: str) -> str:
        return " ".join(text.split())

    assert words(readme_curl()) in words(what_to_try(build_parser().parse_args([])))


def test_every_deployed_and_development_package_has_its_reason() -> None:
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    pins = [
        line.partition("==")[::2]
        for name in ("requirements.txt", "requirements-dev.txt")
        for line in Path(ROOT / name).read_text().splitlines()
        if "==" in line
    ]
    assert len(pins) > 10
    assert [pin for pin in pins if pin[0] not in reasons or pin[1] not in reasons] == []
