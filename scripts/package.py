"""`python -m scripts.package [--backend storage|scheduler] TARGET`: what is deployed, as a folder or .zip.

It holds the files that .funcignore lets through, the description of the API, and each module compiled for the
Python that runs this. The backend stands in host.json, because the scale controller reads that file and
nothing else (docs/decisions/durable-backend.md).
"""

import argparse
import json
import os
import py_compile
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pathspec import GitIgnoreSpec

from durable_retry.features.openapi.routes import SHIPPED, documents

ROOT: Final = Path(__file__).parents[1]
PATCHES: Final = {"storage": None, "scheduler": ROOT / "infra" / "host.scheduler.json"}
"""What each backend changes in host.json, as a JSON merge patch (RFC 7396)."""


LEAST_BUNDLE: Final = (4, 38)
"""Older extension bundles replace a finished instance when its id is started again."""

NEEDS: Final = (
    "It needs a Functions host of 4.1038 or newer; with func start, Core Tools of 4.14 or newer and the"
    " virtual environment inside of the app's folder: docs/deploying.md, Least versions."
)
UNPROVEN: Final = {
    "scheduler": "This app needs entities, and whether a Durable Task Scheduler runs those of a Python app"
    " is not known: nobody has run it there. Run scripts.smoke before anything depends on it.",
}
"""What is said of a backend on which the app has not been run."""


class OldBundleError(Exception):
    """host.json lets in an extension bundle that the app does not run on."""


def deployed_files() -> Iterator[Path]:
    """Yield what is sent to Azure, relative to the root, whether it is in git or not."""
    ignored = GitIgnoreSpec.from_lines((ROOT / ".funcignore").read_text(encoding="utf-8").splitlines())
    for folder, folders, names in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        folders[:] = [name for name in folders if not ignored.match_file(f"{here / name}/")]
        yield from (here / name for name in names if not ignored.match_file(str(here / name)))


def compiled_modules(files: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield what `import` reads in place of each module among the files, by its path.

    It is not compared with the source: a deployment is read-only, so it could not be written anew either.
    """
    with TemporaryDirectory() as folder:
        compiled = Path(folder, "compiled.pyc")
        for file in files:
            if file.suffix == ".py":
                py_compile.compile(
                    str(ROOT / file),
                    cfile=str(compiled),
                    dfile=file.as_posix(),
                    doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
                yield Path(cache_from_source(file)), compiled.read_bytes()


def host_json(backend: str) -> bytes:
    """Return host.json for a backend: the file itself, or patched."""
    text = (ROOT / "host.json").read_bytes()
    patch = PATCHES[backend]
    if patch is None:
        return text
    return (json.dumps(merged(json.loads(text), json.loads(patch.read_text())), indent=2) + "\n").encode()


def check_bundle(text: bytes) -> None:
    """Check which extension bundles host.json lets in.

    Raises:
        OldBundleError: It lets in one that is older than `LEAST_BUNDLE`, or says no range.
    """
    stated = str(json.loads(text).get("extensionBundle", {}).get("version"))
    lowest = re.match(r"\[(\d+)\.(\d+)", stated)
    if lowest is None or tuple(map(int, lowest.groups())) < LEAST_BUNDLE:
        least = ".".join(map(str, LEAST_BUNDLE))
        message = f"host.json: extensionBundle.version is {stated}, and must begin with [{least} or more"
        raise OldBundleError(message)


def merged(document: Any, patch: Any) -> Any:
    """Return a document with a merge patch applied: an object's members one by one, null removes."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def write(target: Path, backend: str) -> None:
    """Write the package.

    Args:
        target: A name that ends in `.zip`, or a folder; it is made, and the folders around it.
        backend: A key of `PATCHES`.

    Raises:
        FileExistsError: There is something already.
        OSError: The place cannot be written to.
        OldBundleError: host.json lets in an extension bundle that the app does not run on.
    """
    contents = {file: (ROOT / file).read_bytes() for file in sorted(deployed_files())}
    contents |= {SHIPPED.relative_to(ROOT) / name: content for name, content in documents().items()}
    contents[Path("host.json")] = host_json(backend)
    check_bundle(contents[Path("host.json")])
    contents |= dict(compiled_modules(contents))
    if target.suffix == ".zip":
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as archive:
            for file, content in contents.items():
                archive.writestr(file.as_posix(), content)
        return
    target.mkdir(parents=True)
    for file, content in contents.items():
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (target / file).write_bytes(content)


def main() -> None:
    """Read the arguments and write the package."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.package", description="Packages what is deployed."
    )
    parser.add_argument("target", type=Path, help="a .zip file, or a folder; must not exist")
    parser.add_argument(
        "--backend",
        choices=[*PATCHES],
        default="storage",
        help="where orchestrations are kept (default: storage)",
    )
    arguments = parser.parse_args()
    try:
        write(arguments.target, arguments.backend)
    except FileExistsError:
        parser.error(f"{arguments.target} exists already: remove it, or choose another name")
    except (OldBundleError, OSError) as error:
        parser.error(str(error))
    print(NEEDS, UNPROVEN.get(arguments.backend, ""), file=sys.stderr)


if __name__ == "__main__":
    main()
