import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import release
from scripts.release import PLACES, ROOT, ReleaseError, absolute_links, check, set_version, version

URL = "https://git.example.com/o/r"


def test_links_and_pictures_of_a_page_lead_to_the_tag() -> None:
    page = (
        "[a](docs/api.md#lists) ![p](docs/pictures/operation-light.png) [w](https://w.example) [h](#here)\n"
        '<img src="docs/pictures/operation-dark.png">'
    )
    assert absolute_links(page, Path(), URL, "v1") == (
        f"[a]({URL}/blob/v1/docs/api.md#lists) ![p]({URL}/raw/v1/docs/pictures/operation-light.png) "
        f'[w](https://w.example) [h](#here)\n<img src="{URL}/raw/v1/docs/pictures/operation-dark.png">'
    )
    assert absolute_links("[d](../../docs/onebox.md)", Path("packages/onebox"), URL, "v1") == (
        f"[d]({URL}/blob/v1/docs/onebox.md)"
    )


def test_wheels_are_made_with_an_interpreter_that_has_no_packages() -> None:
    command = [sys.executable, "-ES", "-m", "scripts.release", "--help"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_a_release_has_a_tag_of_its_version_and_a_section_of_the_changelog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(f"v{version()}")
    with pytest.raises(ReleaseError, match=r"the tag is v9\.9\.9"):
        check("v9.9.9")
    monkeypatch.setattr(release, "version", lambda: "9.9.9")
    with pytest.raises(ReleaseError, match=r"no section \[9\.9\.9\]"):
        check("v9.9.9")


def test_a_version_is_written_to_all_of_its_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((release.ROOT / name).read_text())
    old = version()
    monkeypatch.setattr(release, "ROOT", tmp_path)
    set_version("7.8.9")
    assert version() == "7.8.9"
    texts = {name: (tmp_path / name).read_text() for name in PLACES}
    assert all("7.8.9" in text for text in texts.values())
    kept = re.compile(rf'(version|VERSION|retryctl=|console=|client=).*"?{re.escape(old)}"')
    assert not [name for name, text in texts.items() if kept.search(text)]
    (tmp_path / "durable_retry/features/openapi/routes.py").write_text("")
    with pytest.raises(ReleaseError, match=r"durable_retry/features/openapi/routes\.py: no version"):
        set_version("8.0.0")


def test_what_pip_cannot_build_is_said_without_its_progress(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        progress = "" if "--quiet" in command else "Processing ...\n" * 40
        return subprocess.CompletedProcess(command, 1, progress, "ERROR: requires a different Python")

    monkeypatch.setattr(release, "stage", lambda *_: None)
    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(ReleaseError, match=r"^pip failed:\nERROR: requires a different Python$"):
        release.build_wheels(tmp_path / "dist", URL, "v1")
