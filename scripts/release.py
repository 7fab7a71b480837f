"""Build and check what a release publishes: wheels and sdists of the packages, in `dist/`.

make dist                                             # the wheels alone, with any Python 3.13 that has pip
make release                                          # builds and checks
make release ARGS="--tag v0.2.0 --repository URL"     # as the workflow does; links of the README lead there
python -m scripts.release --set-version 0.2.0         # writes the next version everywhere
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = (Path(), *(Path("packages") / name for name in ("client", "console", "onebox", "retryctl")))
PLACES: Final = {
    "pyproject.toml": (r'(?m)^version = "(.+)"$', r'"retryctl==(.+)"', r'"durable-retry-console==(.+)"'),
    "durable_retry/features/openapi/routes.py": (r'(?m)^VERSION: Final = "(.+)"$',),
    "packages/client/durable_retry_client/__init__.py": (r'(?m)^__version__: Final = "(.+)"$',),
    "packages/console/durable_retry_console/__init__.py": (r'(?m)^__version__: Final = "(.+)"$',),
    "packages/onebox/onebox/__init__.py": (r'(?m)^__version__ = "(.+)"$',),
    "packages/retryctl/pyproject.toml": (r'"durable-retry-client==(.+?)"',),
    "packages/retryctl/retryctl/__init__.py": (r'(?m)^__version__: Final = "(.+)"$',),
}
"""Every place of the version, which the packages share: each is built and run by itself."""

_LINK: Final = re.compile(r'(\]\(|src="|srcset=")(?!https?:|mailto:|#|data:)([^)"\s]+)')
_PICTURES: Final = (".png", ".svg", ".gif", ".jpg")


class ReleaseError(Exception):
    """What is not ready to be published."""


def version() -> str:
    """Return the version of the packages."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def set_version(new: str) -> None:
    """Write a version to all of its places."""
    for name, patterns in PLACES.items():
        file = ROOT / name
        text = file.read_text(encoding="utf-8")
        for pattern in patterns:
            match = re.search(pattern, text)
            if match is None:
                raise ReleaseError(f"{name}: no version where one is expected")
            text = text[: match.start(1)] + new + text[match.end(1) :]
        file.write_text(text, encoding="utf-8")


def absolute_links(text: str, folder: Path, repository: str, tag: str) -> str:
    """Return a page whose links and pictures also work outside of the repository.

    Args:
        text: Markdown.
        folder: Where the page is, from the root.
        repository: Its URL.
        tag: The state of it that links lead to.
    """

    def absolute(match: re.Match[str]) -> str:
        path, _, anchor = match[2].partition("#")
        inside = (ROOT / folder / path).resolve().relative_to(ROOT)
        kind = "raw" if path.endswith(_PICTURES) else "blob"
        return f"{match[1]}{repository}/{kind}/{tag}/{inside}" + (f"#{anchor}" if anchor else "")

    return _LINK.sub(absolute, text)


def check(tag: str | None) -> None:
    """Check that this state can be a release.

    Args:
        tag: Its tag in git; None when it has none yet.

    Raises:
        ReleaseError: It cannot.
    """
    if tag is not None and tag != f"v{version()}":
        raise ReleaseError(f"the tag is {tag}, and the version {version()}: they must be the same")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"\n## [{version()}] - " not in changelog:
        raise ReleaseError(f"CHANGELOG.md has no section [{version()}] with its date")


def stage(folder: Path, repository: str, tag: str) -> None:
    """Copy what the repository holds, with absolute links in the packages' pages."""
    listed = subprocess.run(  # the repository's own, not a package's
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607 # git as it is found
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.splitlines()):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for package in PACKAGES:
        page = folder / package / "README.md"
        text = absolute_links(page.read_text(encoding="utf-8"), package, repository, tag)
        page.write_text(text, encoding="utf-8")


def describe(folder: Path) -> None:
    """Add descriptions of the API; without them the app makes its own when it is asked for it."""
    api = import_module("durable_retry.features.openapi.routes")  # It needs packages that pip alone lacks.
    shipped = folder / api.SHIPPED.relative_to(ROOT)
    shipped.mkdir()
    for name, content in api.documents().items():
        (shipped / name).write_bytes(content)


def build(dist: Path, repository: str, tag: str) -> None:
    """Build an sdist of each package, and from that its wheel."""
    with _staged_packages(dist, repository, tag) as folders:
        describe(Path(folders[0]))
        for folder in folders:
            _run("build", "--no-isolation", "--outdir", str(dist), folder)
    _run("twine", "check", "--strict", *map(str, sorted(dist.iterdir())))


def build_wheels(dist: Path, repository: str, tag: str) -> None:
    """Build the wheel of each package, with nothing but pip."""
    with _staged_packages(dist, repository, tag) as folders:
        # Quietly: of a Python that is too old, the one line that says so would be behind forty others.
        _run("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(dist), *folders)


@contextmanager
def _staged_packages(dist: Path, repository: str, tag: str) -> Iterator[list[str]]:
    """Empty the folder of what was built, and give the folders to build the packages in."""
    shutil.rmtree(dist, ignore_errors=True)
    with TemporaryDirectory() as folder:
        stage(Path(folder), repository, tag)
        yield [str(Path(folder) / package) for package in PACKAGES]


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run(  # noqa: S603 - modules of the development requirements
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ReleaseError(f"{module} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def main() -> int:
    """Build the release, or set its version; return the exit code."""
    parser = argparse.ArgumentParser(description="Build and check the packages of a release.")
    parser.add_argument("--tag", help="the tag in git; it must fit the version")
    parser.add_argument(
        "--repository",
        default="https://github.com/OWNER/REPOSITORY",
        help="the repository's URL, for the links of the pages that an index shows",
    )
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--set-version", metavar="VERSION", help="write this version everywhere, and end")
    parser.add_argument(
        "--wheels", action="store_true", help="the wheels alone, unchecked, to install from here"
    )
    chosen = parser.parse_args()
    try:
        if chosen.set_version:
            set_version(chosen.set_version)
            return 0
        make = build_wheels if chosen.wheels else build
        if not chosen.wheels:
            check(chosen.tag)
        make(chosen.dist, chosen.repository.rstrip("/"), chosen.tag or f"v{version()}")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for file in sorted(chosen.dist.iterdir()):
        print(f"release: {file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
