"""Imports point one way and in no circle. Read off the source with `ast`."""

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

from durable_retry.plugins import plugins

ROOT: Final = Path(__file__).resolve().parents[2]

LIBRARY: Final = "durable_retry"
CONSOLE: Final = "durable_retry_console"
DURABLE_FOLDERS: Final = ("orchestrators", "activities", "entities")
"""They import their own modules as `from .steps import ...`: in the wheel they are inside the library."""
FEATURES: Final = {plugin.name: plugin for plugin in plugins() if plugin.name}
"""The features of this tree by their names, which are those of their folders."""
OF_FEATURES: Final[Mapping[str, str]] = {
    f"{folder}/{module}.py": name
    for name, plugin in FEATURES.items()
    for folder, modules in (
        ("orchestrators", (*plugin.orchestrators, plugin.gate)),
        ("activities", [each.module for each in plugin.activities]),
        ("entities", plugin.entities),
    )
    for module in modules
}
"""The files outside its folder that belong to a feature: nothing of it may be imported by any other."""
LAYERS: Final = (
    "deferred",
    "plugins",
    "runtime.executor_guard",
    "engine",
    "runtime.concurrency",
    "clock",
    "runtime.sharing",
    "handlers",
    "telemetry",
    "settings",
    "stores",
    "runtime.binding",
    "runtime.platform_retries",
    "runtime.turns",
    "services",
)
"""Below the surfaces, each may import itself and what stands before it."""
FOR_TRIGGERS: Final = tuple(layer for layer in LAYERS if layer != "stores")
"""A use case is one function of a service: who parses a request or a message goes past none to a store."""
PASS_THE_HUB_ON: Final = (f"{LIBRARY}.http", f"{LIBRARY}.triggers", "activities")
"""They get a `TaskHub` by their binding, and a service asks it."""

NEVER_DEPLOYED: Final = frozenset(
    {"durable_retry_client", "onebox", "retryctl", "scripts", "examples", "bench", "tests"}
)

MAY_IMPORT: Final[Mapping[str, frozenset[str]]] = {
    **{
        f"{LIBRARY}.{layer}": frozenset(f"{LIBRARY}.{below}" for below in LAYERS[: at + 1])
        for at, layer in enumerate(LAYERS)
    },
    **{
        surface: frozenset(f"{LIBRARY}.{layer}" for layer in LAYERS)
        for surface in ("orchestrators", "entities")
    },
    "activities": frozenset(f"{LIBRARY}.{layer}" for layer in FOR_TRIGGERS),
    f"{LIBRARY}.http": frozenset(f"{LIBRARY}.{layer}" for layer in (*FOR_TRIGGERS, "http")),
    f"{LIBRARY}.triggers": frozenset(f"{LIBRARY}.{layer}" for layer in (*FOR_TRIGGERS, "http", "triggers")),
    CONSOLE: frozenset(
        {*(f"{LIBRARY}.{layer}" for layer in (*LAYERS, "http", "triggers", "features")), CONSOLE}
    ),
    **{
        f"{LIBRARY}.features.{name}": frozenset(
            f"{LIBRARY}.{layer}" for layer in (*LAYERS, "http", f"features.{name}")
        )
        for name in FEATURES
    },
    **{
        f"{LIBRARY}.features.{name}.rules": frozenset(
            {f"{LIBRARY}.engine", *(f"{LIBRARY}.features.{name}.{part}" for part in ("names", "rules"))}
        )
        for name in FEATURES
        if [*(ROOT / LIBRARY / "features" / name).glob("rules*")]
    },
    f"{LIBRARY}.routing": frozenset(f"{LIBRARY}.{layer}" for layer in (*LAYERS, "http", "triggers", "api")),
    f"{LIBRARY}.api": frozenset(f"{LIBRARY}.{layer}" for layer in (*LAYERS, "http", "triggers", "routing")),
    f"{LIBRARY}.app": frozenset(f"{LIBRARY}.{layer}" for layer in (*LAYERS, "http", "triggers", "routing")),
    f"{LIBRARY}.testing": frozenset(f"{LIBRARY}.{layer}" for layer in (*LAYERS, "testing")),
    f"{LIBRARY}.in_process": frozenset(f"{LIBRARY}.{layer}" for layer in FOR_TRIGGERS),
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

ENGINE: Final = f"{LIBRARY}.engine"
ENGINE_PACKAGES: Final = (
    "base",
    "queue_checks",
    "circuit",
    "limits",
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
"""See `durable_retry.deferred`."""

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
    return layer == ENGINE or layer.endswith(".rules")


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
    if layer in PASS_THE_HUB_ON:
        found.extend(f"{line}: asks the task hub" for line in asked_hubs(tree))
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


def engine_violations(package: str, source: str) -> list[str]:
    """List the imports of a package of the engine that point up."""
    allowed = [f"{ENGINE}.{below}" for below in ENGINE_PACKAGES[: ENGINE_PACKAGES.index(package) + 1]]
    return [
        f"{line}: imports {name}"
        for line, name in imported_by(ast.parse(source))
        if is_in(name, ENGINE) and not any(is_in(name, below) for below in allowed)
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


@pytest.mark.parametrize(
    "path",
    [
        *(path for path in files_of(CONSOLE) if path.stem.endswith(("routes", "activities"))),
        *(path for path in files_of(f"{LIBRARY}.features") if path.stem == "routes"),
        *files_of("activities"),
    ],
    ids=lambda path: f"{path.parent.name}.{path.stem}",
)
def test_a_route_or_activity_imports_no_store(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {part for _, name in imported_by(tree) for part in name.split(".")[:-1]}
    assert {each for each in modules if each == "stores" or each.endswith("store")} == set()
    assert [*asked_hubs(tree)] == []


def test_every_module_of_the_library_has_a_layer() -> None:
    surfaces = {
        "http",
        "triggers",
        "features",
        "routing",
        "api",
        "app",
        "runtime",
        "in_process",
        "testing",
    }
    assert modules_in(ROOT / LIBRARY) <= {*LAYERS, *surfaces}


def test_a_folder_without_sources_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "moved" / "__pycache__").mkdir(parents=True)
    (tmp_path / "moved" / "__pycache__" / "rule.cpython-313.pyc").touch()
    (tmp_path / "kept").mkdir()
    for name in ("__init__.py", "README.md", "clock.py", "kept/rule.py"):
        (tmp_path / name).touch()
    assert modules_in(tmp_path) == {"clock", "kept"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circle_in(import_graph()) == []


@pytest.mark.parametrize("package", ENGINE_PACKAGES)
def test_imports_between_packages_of_the_engine_point_one_way(package: str) -> None:
    paths = files_of(f"{ENGINE}.{package}")
    assert paths
    assert {
        path.name: found
        for path in paths
        if (found := engine_violations(package, path.read_text(encoding="utf-8")))
    } == {}


def test_every_package_of_the_engine_has_its_place() -> None:
    assert modules_in(ROOT / LIBRARY / "engine") == set(ENGINE_PACKAGES)


def test_an_import_that_points_up_inside_the_engine_is_found() -> None:
    assert engine_violations("circuit", "from durable_retry.engine.retry.policy import RetryPolicy")
    assert not engine_violations("retry", "from durable_retry.engine.circuit.retry_budget import Budget")


def test_a_circle_is_found() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []


def test_the_import_graph_has_edges() -> None:
    graph = import_graph()
    assert "durable_retry.engine.retry.decide" in graph["orchestrators.operation"]
    assert "durable_retry.runtime.turns" in graph["orchestrators.operation"]


def test_the_composition_root_imports_neither_what_is_never_deployed_nor_the_console() -> None:
    root = ROOT / "function_app.py"
    modules = {name.split(".")[0] for _, name in imported_by(ast.parse(root.read_text(encoding="utf-8")))}
    assert not modules & {*NEVER_DEPLOYED, CONSOLE}


@pytest.mark.parametrize(
    "layer", [ENGINE, f"{LIBRARY}.stores", f"{LIBRARY}.triggers", CONSOLE, "onebox", "retryctl"]
)
def test_the_check_sees_files(layer: str) -> None:
    assert len(files_of(layer)) > 5


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("engine", "import durable_retry.stores"),
        ("engine", "from durable_retry import stores"),
        ("engine", "import durable_retry.telemetry.metrics"),
        ("engine", "import opentelemetry.trace"),
        ("engine", "from durable_retry.stores.storage.tables import Row"),
        ("engine", "def f():\n    import onebox.clock"),
        ("engine", "from . import policy"),
        ("stores", "x = imported('durable_retry.features.outbox.sending:sweep')"),
        ("engine", "import random"),
        ("engine", "import time as t"),
        ("engine", "import os.path"),
        ("engine", "import httpx"),
        ("engine", "from azure import functions"),
        ("engine", "import asyncio"),
        ("engine", "from urllib.request import urlopen"),
        ("engine", "from datetime import datetime\nat = datetime.now()"),
        ("engine", "import datetime\nat = datetime.datetime.utcnow()"),
        ("engine", "from datetime import date\nday = date.today()"),
        ("engine", "open('x')"),
        ("engine", "exec('x = 1')"),
        ("telemetry", "from durable_retry.stores.storage import tables"),
        ("telemetry", "import durable_retry.triggers.http"),
        ("settings", "from durable_retry.stores.storage import tables"),
        ("stores", "from durable_retry.services import submit"),
        ("stores", "import durable_retry.triggers.http"),
        ("stores", "from orchestrators import operation"),
        ("stores", "import onebox"),
        ("services", "from durable_retry.triggers.http import answers"),
        ("services", "from activities import operation"),
    ],
)
def test_the_check_catches_a_violation_in_the_library(layer: str, source: str) -> None:
    assert violations_in(source, f"{LIBRARY}.{layer}")


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("durable_retry.triggers", "from onebox.clock import Clock"),
        ("durable_retry.triggers", "from durable_retry.stores.task_hub import TaskHub"),
        ("durable_retry.triggers", "async def f(hub):\n    await hub.read_instance('op-1')"),
        ("durable_retry.http", "from durable_retry.stores.storage import tables"),
        ("durable_retry.in_process", "from durable_retry.stores.operations.status import find_status"),
        ("durable_retry.triggers", "import retryctl.api"),
        ("durable_retry.app", "from durable_retry_console.app import PLUGIN"),
        ("durable_retry.routing", "x = imported('durable_retry_console.app:PLUGIN')"),
        ("durable_retry.in_process", "from durable_retry_client import OperationFailed"),
        ("durable_retry_client", "from durable_retry.in_process import OperationFailed"),
        ("orchestrators", "from durable_retry_console.bulk.shapes import BatchPace"),
        ("retryctl", "import durable_retry_console"),
        ("durable_retry.triggers", "import orchestrators.operation"),
        ("activities", "import scripts.run"),
        ("activities", "from durable_retry.features.workflows.batches import find_batch"),
        ("durable_retry.services", "from durable_retry.features.workflows.batches import find_batch"),
        ("durable_retry.app", "from durable_retry.features.workflows import PLUGIN"),
        ("durable_retry.features.workflows.rules", "from durable_retry.stores.storage import tables"),
        ("durable_retry.features.workflows.rules", "import asyncio"),
        ("activities", "from durable_retry.triggers.http import answers"),
        ("activities", "from orchestrators import operation"),
        ("orchestrators", "from activities import operation"),
        ("orchestrators", "from orchestrators.run import Run"),
        ("orchestrators", "from ..activities import operation"),
        ("entities", "from tests.support import builders"),
        ("onebox", "from durable_retry.engine.retry.policy import RetryPolicy"),
        ("onebox", "import function_app"),
        ("retryctl", "from durable_retry.engine.retry.policy import RetryPolicy"),
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
            f"{LIBRARY}.engine",
            "from dataclasses import dataclass\nfrom durable_retry.engine.retry.policy import RetryPolicy",
        ),
        (f"{LIBRARY}.engine", "from urllib.parse import unquote\nfrom pydantic import BaseModel"),
        (f"{LIBRARY}.stores", "from durable_retry.engine.retry import policy\nimport azure.data.tables"),
        (f"{LIBRARY}.stores", "from durable_retry.telemetry import metrics"),
        (f"{LIBRARY}.triggers", "from durable_retry.services import submit\nimport azure.functions"),
        (
            "orchestrators",
            "from durable_retry.engine.retry import decide\nfrom . import steps\nfrom .steps import Steps",
        ),
        (f"{LIBRARY}.telemetry", "import opentelemetry.sdk"),
        ("onebox", "import os\nfrom onebox.hub import hub"),
    ],
)
def test_the_check_allows_what_is_allowed(layer: str, source: str) -> None:
    assert violations_in(source, layer) == []
