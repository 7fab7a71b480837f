"""Environments that have some packages and nothing else of this machine."""

import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


def install_packages(app: Path, target: Path) -> None:
    """Put what `pip install -r requirements.txt` brings into a folder.

    What is of the app's own folder is installed from there, the rest is links to what is installed here.
    """
    lines = (app / "requirements.txt").read_text().splitlines()
    own = [line for line in lines if line.startswith("./")]
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", target)
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *own], cwd=app, check=True)
    link_packages(target, [line for line in lines if line and not line.startswith(("#", "-", "./"))])


def link_packages(target: Path, requirements: list[str]) -> None:
    """Put packages, and those that they ask for, into a folder, as links to what is installed here."""
    for package in _closure(requirements):
        site = Path(str(package.locate_file("")))
        for part in {_whole(site, Path(file)) for file in package.files or () if file.parts[0] != ".."}:
            (target / part).parent.mkdir(parents=True, exist_ok=True)
            (target / part).symlink_to(site / part)


def _whole(site: Path, file: Path) -> Path:
    """The outermost folder around a file that belongs to one package alone, or else the file."""
    around = reversed(file.parents[:-1])
    return next((folder for folder in around if (site / folder / "__init__.py").exists()), file)


def _closure(requirements: list[str]) -> list[Distribution]:
    """The packages that are asked for, and those that they ask for."""
    found: dict[str, Distribution] = {}
    asked = [Requirement(text) for text in requirements]
    while asked:
        wanted = asked.pop()
        wants = [extra for extra in ("", *wanted.extras) if f"{wanted.name}[{extra}]" not in found]
        for extra in wants:
            package = found[f"{wanted.name}[{extra}]"] = distribution(wanted.name)
            needs = (Requirement(text) for text in package.requires or ())
            asked += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return list({package.metadata["Name"]: package for package in found.values()}.values())
