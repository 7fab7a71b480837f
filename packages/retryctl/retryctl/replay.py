"""The command `check-replay`: whether what is under way could go on with the code in a folder.

The replay needs the app's code and packages, which retryctl does not: the app's own Python runs
`durable_retry.features.histories.replay`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import quote

from retryctl import errors
from retryctl.api import Api
from retryctl.commands import Command, Given
from retryctl.errors import UsageError
from retryctl.output import Lines, Screen, filled

_MODULE: Final = "durable_retry.features.histories.replay"
_PYTHONS: Final = (".venv/bin/python", ".venv/Scripts/python.exe")


def _check_replay(api: Api, given: Given, screen: Screen) -> int:
    app = _folder(given.get("app", "."))
    with TemporaryDirectory() as temporary:
        if "histories" in given:
            folder = _folder(given["histories"])
            if next(folder.rglob("*.json"), None) is None:
                raise UsageError(f"{folder} has no histories, which are files *.json")
        else:
            folder = Path(given.get("save", temporary)).resolve()
            _download(api, given, folder, screen)
        document = _replayed(app, folder)
    screen.show(document, _lines)
    return errors.FAILED if document["differences"] else errors.OK


def _folder(name: str) -> Path:
    folder = Path(name).resolve()
    if not folder.is_dir():
        raise UsageError(f"{name} is no folder")
    return folder


def _download(api: Api, given: Given, folder: Path, screen: Screen) -> None:
    """Write the histories of what is under way, a file each."""
    limit = given.get("limit", 1000)
    histories = _histories(api, given)
    folder.mkdir(parents=True, exist_ok=True)
    for history in islice(histories, limit):
        name = quote(history["instance_id"], safe="")[-200:]
        (folder / f"{name}.json").write_text(json.dumps(history, indent=1), encoding="utf-8")
    if next(histories, None) is not None:
        screen.note(f"these are the first {limit}; --all reads every history")


def _histories(api: Api, given: Given) -> Iterator[Any]:
    query = {"completed": given["completed"]} if "completed" in given else {}
    while True:
        page = api.ask("GET histories", query)
        yield from page["items"]
        if page["next_cursor"] is None:
            return
        query["cursor"] = page["next_cursor"]


def _replayed(app: Path, folder: Path) -> Any:
    own = (app / python for python in _PYTHONS)
    python = next((str(each) for each in own if each.is_file()), sys.executable)
    done = subprocess.run(
        [python, "-m", _MODULE, str(folder)], cwd=app, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UsageError(f"the app in {app} cannot replay, with {python}:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def _lines(document: Any) -> Lines:
    text = "{orchestrator} {instance_id}\n  event {event}: history: {history}; code: {code}"
    yield from filled(text, document["differences"])
    counts = document["orchestrators"]
    number, names = sum(counts.values()), ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
    without = len(document["differences"])
    fit = (
        f"{without} of {number} do not fit" if without else f"{number} fit" if number else "nothing to replay"
    )
    yield f"{fit} ({names})" if names else fit


COMMANDS: Final = (
    Command(
        "check-replay",
        "replay the histories of what is under way against the code in a folder",
        _check_replay,
        "app_folder histories_or_save completed limit1000",
    ),
)
