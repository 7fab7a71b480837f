import ast
import json
import re
from collections.abc import Iterator, Mapping
from inspect import getfile
from pathlib import Path
from typing import Any

import pytest

import onebox.environment
import retryctl.api
from docs.settings_reference import reference, shown
from durable_retry.settings.catalogue import groups
from durable_retry.settings.mistakes import HOST_JSON
from scripts.processes import ROOT
from tests.support.documents import Document

READERS = sorted(
    path
    for path in ROOT.rglob("*.py")
    if not (parts := path.relative_to(ROOT).parts)[0].startswith(".")  # environments of their own
    and parts[0] not in {"bench", "scripts", "examples", "conftest.py"}
    and not {"tests", "node_modules"} & set(parts)
)
CATALOGUES = {
    *(Path(getfile(group)).relative_to(ROOT).as_posix() for group in groups()),
    "packages/onebox/onebox/environment.py",
    "packages/retryctl/retryctl/api.py",
}
COMPUTED = {
    "durable_retry/settings/group.py": "reads what the groups declare",
    "durable_retry/features/histories/replay.py": "takes over what local.settings.json has",
    "durable_retry/settings/intake.py": "names with a tail: KEY_POINTERS_KAFKA",
    "durable_retry/features/sources/settings.py": "names with a tail: connections by identity",
}
"""Files that go through the environment by names that they make, and why."""

TEXT = Document("docs/settings.md").text


def section(heading: str) -> str:
    return TEXT.partition(f"\n{heading}\n")[2].partition("\n#")[0]


PLATFORM = re.findall(r"^\| `(\w+)`", section("### Read by others"), re.MULTILINE)
"""App settings that files of this repository name and its code does not read."""

KNOWN = (
    {setting.name for group in groups() for setting in group.described()}
    | {variable.name for variable in onebox.environment.VARIABLES + retryctl.api.VARIABLES}
    | set(PLATFORM)
)


def reads(source: str) -> Iterator[ast.expr]:
    """Give the name in each read of the environment: `environ.get(name)`, `environ[name]`, `getenv(name)`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=where, attr="get" | "setdefault" | "pop"), args=[name, *_]
            ):
                if ast.unparse(where).endswith(("environ", "environment")):
                    yield name
            case ast.Subscript(value=where, slice=name) if ast.unparse(where).endswith("environ"):
                yield name
            case ast.Call(func=called, args=[name, *_]) if ast.unparse(called).endswith("getenv"):
                yield name


def is_name_of(value: ast.expr | None) -> bool:
    """Whether an expression asks a group of settings for a name."""
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith(".name_of")


def constants_in(source: str) -> Iterator[str]:
    """Give the constants of a file that hold the name of a setting."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_known = isinstance(node.value, ast.Constant) and node.value.value in KNOWN
            if is_known or is_name_of(node.value):
                yield node.target.id


def unknown_in(source: str) -> list[str]:
    """List the reads whose name is neither that of a catalogued setting nor known as text."""
    found = []
    names_of_settings = set(constants_in(source))
    for name in reads(source):
        is_catalogued = (
            (isinstance(name, ast.Attribute) and name.attr == "name")
            or is_name_of(name)
            or (isinstance(name, ast.Name) and name.id in names_of_settings)
        )
        is_known = isinstance(name, ast.Constant) and name.value in KNOWN
        if not (is_catalogued or is_known):
            found.append(ast.unparse(name))
    return found


def declared_in(source: str) -> set[str]:
    fields = {
        node.target.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in {"setting", "seconds", "days"}
    }
    return fields | {
        str(node.args[0].value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Variable"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


def test_a_section_that_lacks_a_table_is_noticed() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    with pytest.raises(ValueError, match="zip"):
        reference(page.replace("### Presets\n\n<!-- table -->", "### Presets"))
    with pytest.raises(ValueError, match="substring"):
        reference(page.replace("### Presets", "### Other"))


def keys_in(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from keys_in(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def test_every_key_of_host_json_has_a_row_with_its_value_and_a_reason() -> None:
    rows = re.findall(r"^\| `(\S+)` \| (\S.*?) \| \S", section("## host.json"), re.MULTILINE)
    content = json.loads((ROOT / HOST_JSON).read_text())
    assert rows == [(key, shown(value)) for key, value in keys_in(content)]


def test_every_read_of_the_environment_is_of_a_known_setting() -> None:
    found = {
        name: unknown
        for path in READERS
        if (name := path.relative_to(ROOT).as_posix()) not in COMPUTED
        and (unknown := unknown_in(path.read_text()))
    }
    assert found == {}


def test_settings_are_declared_in_the_catalogues_only_and_every_one_is_in_the_reference() -> None:
    declared = {
        path.relative_to(ROOT).as_posix(): names
        for path in READERS
        if (names := declared_in(path.read_text()))
    }
    assert set(declared) == CATALOGUES
    fields = {field: group.name_of(field) for group in groups() for field in group.model_fields}
    every = [fields.get(name, name) for names in declared.values() for name in names]
    assert [name for name in every if f"| `{name}` |" not in TEXT] == []


@pytest.mark.parametrize(
    "source",
    [
        "os.environ.get('SECRET_SWITCH')",
        "environ['SECRET_SWITCH']",
        "os.getenv('SECRET_SWITCH')",
        "environ.get(x)",
    ],
)
def test_the_scan_catches_a_read_that_is_not_in_the_reference(source: str) -> None:
    assert unknown_in(source)


@pytest.mark.parametrize(
    "source", ["os.environ.get('NO_COLOR')", "SWITCH.get(os.environ)", "environ[SWITCH.name]"]
)
def test_the_scan_lets_known_reads_pass(source: str) -> None:
    assert unknown_in(source) == []


def test_local_settings_and_the_shipped_dependencies_name_known_settings() -> None:
    local = set(json.loads((ROOT / "local.settings.example.json").read_text())["Values"])
    shipped = set(re.findall(r"\$\{(\w+)\}", (ROOT / "dependencies.toml").read_text())) - {"NAME"}
    assert local | shipped <= KNOWN


def test_the_scan_sees_the_code() -> None:
    assert {"durable_retry", "activities", "packages"} <= {
        Path(path).relative_to(ROOT).parts[0] for path in READERS
    }


def test_words_and_bounds_are_shown_where_a_key_may_be_left_out() -> None:
    assert "| `priority` | `normal` |  | `high`, `normal`, `low` |" in TEXT
    assert "| `circuit_open_seconds` |  | s | 0 to 31,536,000 |" in TEXT
