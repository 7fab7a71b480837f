"""Imports point one way and in no circle. Read off the source with `ast`."""

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

from durable_retry.plugins import features

ROOT: Final = Path(__file__).resolve().parents[2]

LIBRARY: Final = "durable_retry"
CONSOLE: Final = "durable_retry_console"
DURABLE_FOLDERS: Final = ("orchestrators", "activities", "entities")
"""They import their own modules as `from .steps import ...`: in the wheel they are inside the library."""
FEATURES: Final = {plugin.name: plugin for plugin in features()}
"""The features of this tree by their names, which are those of their folders."""
OF_FEATURES: Final[Mapping[str, str]] = {
    f"{folder}/{module}.py": name
    for name, plugin in FEATURES.items()
    for folder, modules in (
        (
            "orchestrators",
            (*plugin.orchestrators, plugin.gate, plugin.settle, plugin.decision, plugin.exhausted),
        ),
        ("activities", [each.module for each in plugin.activities]),
        ("entities", plugin.entities),
    )
    for module in modules
}
"""The files outside its folder that belong to a feature: nothing of it may be imported by any other."""
ROOMS: Final = (
    *("runtime", "plugins", "base", "rules", "telemetry", "settings", "storage", "hub", "http"),
    *("circuit", "attempt", "dead_letters", "operations", "intake", "upkeep"),
)
"""The core: each may import itself and what stands before it."""
AT_THE_TOP: Final = ("routing", "app", "handlers", "testing", "features")
PURE_ROOMS: Final = {
    "base": ("runtime.deferred", "plugins", "base"),
    "rules": ("runtime.deferred", "plugins", "base", "rules"),
}
"""They read no clock."""
STORES: Final = frozenset(
    f"{LIBRARY}.{module}"
    for module in (
        *("storage", "hub.task_hub", "hub.instances", "hub.instance_lists", "hub.orchestrations"),
        *("hub.entity_ids", "circuit.cache", "circuit.entity", "attempt.commits"),
        *("attempt.results", "attempt.markers", "dead_letters.index"),
        *("dead_letters.records", "operations.entities", "operations.lone_records"),
        "operations.status",
    )
)
"""What reads and writes storage and the task hub. A use case is one function above it: who parses a request
goes past none."""

NEVER_DEPLOYED: Final = frozenset(
    {"durable_retry_client", "onebox", "retryctl", "scripts", "examples", "bench", "tests"}
)

MAY_IMPORT: Final[Mapping[str, frozenset[str]]] = {
    **{
        f"{LIBRARY}.{room}": frozenset(
            f"{LIBRARY}.{below}" for below in PURE_ROOMS.get(room, ROOMS[: at + 1])
        )
        for at, room in enumerate(ROOMS)
    },
    **{surface: frozenset(f"{LIBRARY}.{room}" for room in ROOMS) for surface in DURABLE_FOLDERS},
    CONSOLE: frozenset({*(f"{LIBRARY}.{room}" for room in (*ROOMS, "features")), CONSOLE}),
    **{
        f"{LIBRARY}.features.{name}": frozenset(
            f"{LIBRARY}.{room}" for room in (*ROOMS, "routing", "testing", f"features.{name}")
        )
        for name in FEATURES
    },
    **{
        f"{LIBRARY}.features.{name}.rules": frozenset(
            {
                *(f"{LIBRARY}.{room}" for room in PURE_ROOMS["rules"]),
                *(f"{LIBRARY}.features.{name}.{part}" for part in ("names", "rules")),
            }
        )
        for name in FEATURES
        if [*(ROOT / LIBRARY / "features" / name).glob("rules*")]
    },
    f"{LIBRARY}.app": frozenset(f"{LIBRARY}.{room}" for room in (*ROOMS, "routing", "app")),
    f"{LIBRARY}.handlers": frozenset({f"{LIBRARY}.rules", f"{LIBRARY}.features.handlers"}),
    f"{LIBRARY}.testing": frozenset(
        f"{LIBRARY}.{part}" for part in (*ROOMS, "testing", "features.handlers", "features.in_process")
    ),
    f"{LIBRARY}.routing": frozenset(f"{LIBRARY}.{room}" for room in (*ROOMS, "routing")),
    "durable_retry_client": frozenset({"durable_retry_client"}),
    "onebox": frozenset({"onebox"}),
    "retryctl": frozenset({"retryctl", "durable_retry_client"}),
}
OURS: Final = frozenset(
    {
        *(LIBRARY, CONSOLE, "orchestrators", "activities", "entities", "function_app"),
        *NEVER_DEPLOYED,
    }
)

RULES: Final = f"{LIBRARY}.rules"
RULES_PACKAGES: Final = (
    "circuit",
    "retry",
    "config",
    "operations",
    "dead_letters",
    "facts",
    "intake",
)
"""Each may import itself and what stands before it."""
PURE: Final = frozenset(
    {
        "__future__",
        "abc",
        "base64",
        "bisect",
        "collections",
        "copy",
        "croniter",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "email",
        "enum",
        "functools",
        "hashlib",
        "hmac",
        "itertools",
        "json",
        "jsonpatch",
        "jsonpointer",
        "math",
        "operator",
        "pydantic",
        "pydantic_core",
        "html",
        "re",
        "string",
        "tomllib",
        "types",
        "typing",
        "urllib",
    }
)
"""What the rules may be made of: nothing here reads a clock, draws a number or touches the world."""

REFERENCE: Final = re.compile(r"(?:[a-z_]+\.)+[a-z_]+:\w+")
"""See `durable_retry.runtime.deferred`."""

IMPURE_CALLS: Final = frozenset(
    {"now", "utcnow", "today", "open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
)


def imported_by(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and full name of each import, wherever it stands: `from a import b` gives `a.b`.

    One that is relative begins with its dots: `from .a import b` gives `.a.b`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (f"{node.module}." if node.module else "")
            yield from ((node.lineno, f"{module}{name.name}") for name in node.names)


def imported_later(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and full name of each module and name that a text defers: `a.b:c` gives `a.b.c`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and REFERENCE.fullmatch(str(node.value)):
            yield node.lineno, str(node.value).replace(":", ".")


def called_by(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and last name of each call: `now` of `datetime.now()`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.lineno, node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def is_pure(layer: str) -> bool:
    """Whether a layer is made of rules: it does no I/O, and reads no clock."""
    return layer == f"{LIBRARY}.base" or layer.endswith(".rules")


def violations_in(source: str, layer: str, feature: str | None = None) -> list[str]:
    """List what a file of a layer may not do, one that belongs to a feature or to none."""
    tree = ast.parse(source)
    allowed = MAY_IMPORT[layer] | ({f"{LIBRARY}.features.{feature}"} if feature else set())
    found = []
    for line, name in (*imported_by(tree), *imported_later(tree)):
        top = name.split(".")[0]
        is_own = layer in DURABLE_FOLDERS and name.startswith(".") and not name.startswith("..")
        if (name.startswith(".") and not is_own) or (
            top in OURS and not any(is_in(name, below) for below in allowed)
        ):
            found.append(f"{line}: imports {name}")
        elif is_pure(layer) and top not in OURS and (top not in PURE or name.startswith("urllib.request")):
            found.append(f"{line}: imports {name}, which is not pure")
    if is_pure(layer):
        found.extend(f"{line}: calls {name}" for line, name in called_by(tree) if name in IMPURE_CALLS)
    return found


def asked_hubs(tree: ast.AST) -> Iterator[int]:
    """Yield the line of each attribute of a `hub`: who passes it on to a service needs none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "hub":
            yield node.lineno


def files_of(layer: str) -> list[Path]:
    """List the Python files of a layer, which is a folder or one module."""
    path = ROOT.joinpath(*layer.split("."))
    if not path.exists() and not path.with_suffix(".py").exists():
        (path,) = (ROOT / "packages").glob(f"*/{layer}")
    if not path.is_dir():
        return [path.with_suffix(".py")]
    return sorted(each for each in path.rglob("*.py") if "node_modules" not in each.parts)


def modules_in(folder: Path) -> set[str]:
    """List the modules and packages of a folder. A folder without sources, such as `__pycache__`, is none."""
    return {
        entry.stem
        for entry in folder.iterdir()
        if entry.suffix == ".py" or (entry.is_dir() and any(entry.rglob("*.py")))
    } - {"__init__"}


def module_name(path: Path) -> str:
    base = ROOT / "packages" / "console" if path.is_relative_to(ROOT / "packages") else ROOT
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, set[str]]:
    """Return the modules of the app, each with those of them that it imports when it is imported."""
    paths = {
        module_name(path): path
        for top in (LIBRARY, CONSOLE, "orchestrators", "activities", "entities")
        for path in files_of(top)
    }
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        package = module if path.stem == "__init__" else module.rpartition(".")[0]
        names = [package + name if name.startswith(".") else name for _, name in imported_by(tree)]
        owners = (name if name in paths else name.rpartition(".")[0] for name in names)
        graph[module] = {owner for owner in owners if owner in paths} - {module}
    return graph


def rule_violations(package: str, source: str) -> list[str]:
    """List the imports of a package of the rules that point up."""
    allowed = [f"{RULES}.{below}" for below in RULES_PACKAGES[: RULES_PACKAGES.index(package) + 1]]
    return [
        f"{line}: imports {name}"
        for line, name in imported_by(ast.parse(source))
        if is_in(name, RULES) and not any(is_in(name, below) for below in allowed)
    ]


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """Return one circle of imports; empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("layer", sorted(MAY_IMPORT))
def test_imports_point_one_way(layer: str) -> None:
    found = {}
    for path in files_of(layer):
        source = path.read_text(encoding="utf-8")
        found[path] = violations_in(source, layer, OF_FEATURES.get(path.relative_to(ROOT).as_posix()))
    assert {path: violations for path, violations in found.items() if violations} == {}


def is_surface(path: Path) -> bool:
    """Whether a file parses what arrives, calls a use case and answers."""
    in_folder = path.parent.name in {"activities", "http"}
    return in_folder or path.stem.endswith(("routes", "triggers", "timers", "activities"))


def is_store(name: str) -> bool:
    """Whether what is imported reads or writes storage itself, by its full name."""
    return any(is_in(name, store) for store in STORES) or name.rpartition(".")[0].endswith("store")


def surface_violations(source: str) -> list[str]:
    """List what a file of the surfaces may not do: go past a use case to a store, or ask the task hub."""
    tree = ast.parse(source)
    stores = [f"{line}: imports {name}, a store" for line, name in imported_by(tree) if is_store(name)]
    return [*stores, *(f"{line}: asks the task hub" for line in asked_hubs(tree))]


SURFACES: Final = [
    path for top in (LIBRARY, CONSOLE, "activities") for path in files_of(top) if is_surface(path)
]


@pytest.mark.parametrize("path", SURFACES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_a_route_trigger_or_activity_imports_no_store_and_passes_the_task_hub_on(path: Path) -> None:
    assert surface_violations(path.read_text(encoding="utf-8")) == []


def test_what_the_apps_own_code_calls_imports_no_store() -> None:
    (path,) = files_of(f"{LIBRARY}.features.in_process.operations")
    names = [name for _, name in imported_by(ast.parse(path.read_text(encoding="utf-8")))]
    assert [name for name in names if is_store(name)] == []


@pytest.mark.parametrize("module", sorted(STORES))
def test_a_store_imports_no_use_case_of_its_room(module: str) -> None:
    room = ".".join(module.split(".")[:2])
    names = [
        name
        for path in files_of(module)
        for _, name in imported_by(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert [name for name in names if is_in(name, room) and not is_store(name)] == []


@pytest.mark.parametrize(
    "source",
    [
        "from durable_retry.hub.task_hub import TaskHub",
        "from durable_retry.storage import tables",
        "from durable_retry.operations.status import find_status",
        "from durable_retry.attempt import results",
        "from durable_retry_console.alerts.store import read_alerts",
        "async def f(hub):\n    await hub.read_instance('op-1')",
    ],
)
def test_a_surface_that_goes_past_a_use_case_is_found(source: str) -> None:
    assert surface_violations(source)


def test_a_surface_may_call_a_use_case_and_pass_the_hub_on() -> None:
    called = "async def f(hub):\n    await cancel(hub, 'op-1')"
    source = f"from durable_retry.operations.actions import cancel\n{called}"
    assert surface_violations(source) == []


def test_the_tables_of_this_file_name_what_is_there() -> None:
    assert modules_in(ROOT / LIBRARY) == {*ROOMS, *AT_THE_TOP}
    assert [module for module in STORES if not files_of(module)] == []
    assert len(SURFACES) > 30


def test_a_folder_without_sources_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "moved" / "__pycache__").mkdir(parents=True)
    (tmp_path / "moved" / "__pycache__" / "rule.cpython-313.pyc").touch()
    (tmp_path / "kept").mkdir()
    for name in ("__init__.py", "README.md", "clock.py", "kept/rule.py"):
        (tmp_path / name).touch()
    assert modules_in(tmp_path) == {"clock", "kept"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circle_in(import_graph()) == []


@pytest.mark.parametrize("package", RULES_PACKAGES)
def test_imports_between_packages_of_the_rules_point_one_way(package: str) -> None:
    paths = files_of(f"{RULES}.{package}")
    assert paths
    assert {
        path.name: found
        for path in paths
        if (found := rule_violations(package, path.read_text(encoding="utf-8")))
    } == {}


def test_every_package_of_the_rules_has_its_place() -> None:
    assert modules_in(ROOT / LIBRARY / "rules") == set(RULES_PACKAGES)


def test_an_import_that_points_up_inside_the_rules_is_found() -> None:
    assert rule_violations("circuit", "from durable_retry.rules.retry.policy import RetryPolicy")
    assert not rule_violations("retry", "from durable_retry.rules.circuit.retry_budget import Budget")


def test_a_circle_is_found() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []


def test_the_import_graph_has_edges() -> None:
    graph = import_graph()
    assert "durable_retry.rules.retry.decide" in graph["orchestrators.operation"]
    assert "durable_retry.hub.turns" in graph["orchestrators.operation"]


def test_the_composition_root_imports_neither_what_is_never_deployed_nor_the_console() -> None:
    root = ROOT / "function_app.py"
    modules = {name.split(".")[0] for _, name in imported_by(ast.parse(root.read_text(encoding="utf-8")))}
    assert not modules & {*NEVER_DEPLOYED, CONSOLE}


@pytest.mark.parametrize(
    "layer", [RULES, f"{LIBRARY}.attempt", f"{LIBRARY}.operations", CONSOLE, "onebox", "retryctl"]
)
def test_the_check_sees_files(layer: str) -> None:
    assert len(files_of(layer)) > 5


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("rules", "import durable_retry.storage"),
        ("rules", "from durable_retry import storage"),
        ("rules", "import durable_retry.telemetry.metrics"),
        ("rules", "import opentelemetry.trace"),
        ("rules", "from durable_retry.storage.tables import Row"),
        ("rules", "def f():\n    import onebox.clock"),
        ("rules", "from . import policy"),
        ("storage", "x = imported('durable_retry.features.outbox.sending:sweep')"),
        ("rules", "import random"),
        ("rules", "import time as t"),
        ("rules", "import os.path"),
        ("rules", "import httpx"),
        ("rules", "from azure import functions"),
        ("rules", "import asyncio"),
        ("rules", "from urllib.request import urlopen"),
        ("rules", "from datetime import datetime\nat = datetime.now()"),
        ("rules", "import datetime\nat = datetime.datetime.utcnow()"),
        ("rules", "from datetime import date\nday = date.today()"),
        ("rules", "open('x')"),
        ("rules", "exec('x = 1')"),
        ("telemetry", "from durable_retry.storage import tables"),
        ("telemetry", "import durable_retry.intake"),
        ("settings", "from durable_retry.storage import tables"),
        ("storage", "from durable_retry.operations.actions import submit"),
        ("storage", "import durable_retry.intake"),
        ("storage", "from orchestrators import operation"),
        ("storage", "import onebox"),
        ("attempt", "from durable_retry.operations import routes"),
        ("attempt", "from activities import operation"),
    ],
)
def test_the_check_catches_a_violation_in_the_library(layer: str, source: str) -> None:
    assert violations_in(source, f"{LIBRARY}.{layer}")


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("durable_retry.intake", "from onebox.clock import Clock"),
        ("durable_retry.http", "from durable_retry.circuit import routes"),
        ("durable_retry.rules", "from durable_retry.runtime import clock"),
        ("durable_retry.intake", "import retryctl.api"),
        ("durable_retry.app", "from durable_retry_console.app import PLUGIN"),
        ("durable_retry.routing", "x = imported('durable_retry_console.app:PLUGIN')"),
        ("durable_retry.features.in_process", "from durable_retry_client import OperationFailed"),
        ("durable_retry_client", "from durable_retry.features.in_process.documents import OperationFailed"),
        ("orchestrators", "from durable_retry_console.bulk.shapes import BatchPace"),
        ("retryctl", "import durable_retry_console"),
        ("durable_retry.intake", "import orchestrators.operation"),
        ("activities", "import scripts.run"),
        ("activities", "from durable_retry.features.workflows.batches import find_batch"),
        ("durable_retry.operations", "from durable_retry.features.workflows.batches import find_batch"),
        ("durable_retry.app", "from durable_retry.features.workflows import PLUGIN"),
        ("durable_retry.features.workflows.rules", "from durable_retry.storage import tables"),
        ("durable_retry.features.workflows.rules", "import asyncio"),
        ("activities", "from durable_retry.routing import collections"),
        ("activities", "from orchestrators import operation"),
        ("orchestrators", "from activities import operation"),
        ("orchestrators", "from orchestrators.run import Run"),
        ("orchestrators", "from ..activities import operation"),
        ("entities", "from tests.support import builders"),
        ("onebox", "from durable_retry.rules.retry.policy import RetryPolicy"),
        ("onebox", "import function_app"),
        ("retryctl", "from durable_retry.rules.retry.policy import RetryPolicy"),
        ("durable_retry_console", "from activities import operation"),
        ("durable_retry_console", "import retryctl.api"),
    ],
)
def test_the_check_catches_a_violation_of_a_surface_or_a_package(layer: str, source: str) -> None:
    assert violations_in(source, layer)


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        (
            RULES,
            "from dataclasses import dataclass\nfrom durable_retry.rules.retry.policy import RetryPolicy",
        ),
        (RULES, "from urllib.parse import unquote\nfrom pydantic import BaseModel"),
        (f"{LIBRARY}.storage", "from durable_retry.rules.retry import policy\nimport azure.data.tables"),
        (f"{LIBRARY}.storage", "from durable_retry.telemetry import metrics"),
        (f"{LIBRARY}.intake", "from durable_retry.operations.actions import submit\nimport azure.functions"),
        (
            "orchestrators",
            "from durable_retry.rules.retry import decide\nfrom . import steps\nfrom .steps import Steps",
        ),
        (f"{LIBRARY}.telemetry", "import opentelemetry.sdk"),
        ("onebox", "import os\nfrom onebox.hub import hub"),
    ],
)
def test_the_check_allows_what_is_allowed(layer: str, source: str) -> None:
    assert violations_in(source, layer) == []
