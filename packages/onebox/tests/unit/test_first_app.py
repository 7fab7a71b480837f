import json
from pathlib import Path

import pytest

from onebox import CannotStartError
from onebox.first_app import FILES, write_first_app
from onebox.host_json import read_host_json


def test_the_first_app_is_written_with_files_that_the_host_reads(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "app"
    write_first_app(folder)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert read_host_json(folder / "host.json", {}).extensions.durable_task.hub_name == "FirstHub"
    values = json.loads((folder / "local.settings.json").read_text())["Values"]
    assert values["AzureWebJobsStorage"] == "UseDevelopmentStorage=true"
    compile((folder / "function_app.py").read_text(), "function_app.py", "exec")


def test_files_that_are_there_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text("mine")
    (tmp_path / ".gitignore").write_text("mine")
    with pytest.raises(CannotStartError, match=r"already has \.gitignore, host\.json"):
        write_first_app(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("host.json", ".gitignore"), "mine"
    )
