"""Imports point one way. Read off the source with `ast`, so that nothing has to be importable."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

SURFACE: Final = frozenset({"triggers", "orchestrators", "activities", "entities"})
APP: Final = SURFACE | {"stores", "telemetry", "engine"}
MAY_IMPORT: Final = {
    **dict.fromkeys(SURFACE, APP),
    "stores": frozenset({"stores", "telemetry", "engine"}),
    "telemetry": frozenset({"telemetry", "engine"}),
    "engine": frozenset({"engine"}),
    "onebox": frozenset({"onebox"}),
    "retryctl": frozenset({"retryctl"}),
}
OURS: Final = APP | {"onebox", "retryctl", "tools", "bench", "tests", "function_app"}

PURE: Final = frozenset(
    {
        "__future__",
        "base64",
        "bisect",
        "collections",
        "dataclasses",
        "datetime",
        "difflib",
        "engine",
        "enum",
        "functools",
        "hashlib",
        "hmac",
        "itertools",
        "json",
        "math",
        "operator",
        "pydantic",
        "pydantic_core",
        "re",
        "string",
        "tomllib",
        "types",
        "typing",
        "urllib",
    }
)
"""What the rules may be made of: nothing here reads a clock, draws a number or touches the world."""

IMPURE_CALLS: Final = frozenset(
    {"now", "utcnow", "today", "open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
)


def imported_by(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Give every imported module's full name, wherever it stands, with its line; dots mean relative ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def called_by(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Give the last name of everything that is called: `now` of `datetime.now()`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.lineno, node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def violations_in(source: str, layer: str) -> list[str]:
    """List what a file of a layer may not do."""
    tree = ast.parse(source)
    found = []
    for line, module in imported_by(tree):
        top = module.split(".")[0]
        if module.startswith(".") or (top in OURS and top not in MAY_IMPORT[layer]):
            found.append(f"{line}: imports {module}")
        elif layer == "engine" and (top not in PURE or module.startswith("urllib.request")):
            found.append(f"{line}: imports {module}, which is not pure")
    if layer == "engine":
        found.extend(f"{line}: calls {name}" for line, name in called_by(tree) if name in IMPURE_CALLS)
    return found


def files_of(layer: str) -> list[Path]:
    """List the Python files of a layer."""
    return sorted(path for path in (ROOT / layer).rglob("*.py") if "node_modules" not in path.parts)


@pytest.mark.parametrize("layer", sorted(MAY_IMPORT))
def test_imports_point_one_way(layer: str) -> None:
    found = {
        str(path.relative_to(ROOT)): violations
        for path in files_of(layer)
        if (violations := violations_in(path.read_text(encoding="utf-8"), layer))
    }
    assert found == {}


def test_the_composition_root_does_not_import_what_is_never_deployed() -> None:
    root = ROOT / "function_app.py"
    modules = {module.split(".")[0] for _, module in imported_by(ast.parse(root.read_text(encoding="utf-8")))}
    assert not modules & {"onebox", "retryctl", "tools", "bench", "tests"}


@pytest.mark.parametrize("layer", ["engine", "onebox", "retryctl"])
def test_the_check_sees_files(layer: str) -> None:
    assert len(files_of(layer)) > 10


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("engine", "import stores"),
        ("engine", "import telemetry.metrics"),
        ("engine", "import opentelemetry.trace"),
        ("telemetry", "from stores import clock"),
        ("telemetry", "import triggers.operations"),
        ("engine", "from stores.tables import Table"),
        ("engine", "def f():\n    import onebox.clock"),
        ("engine", "from . import policy"),
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
        ("stores", "import triggers.operations"),
        ("stores", "from orchestrators import operation"),
        ("stores", "import onebox"),
        ("triggers", "from onebox.clock import Clock"),
        ("activities", "import tools.run"),
        ("entities", "from tests import engine_samples"),
        ("onebox", "from engine.policy import RetryPolicy"),
        ("onebox", "import function_app"),
        ("onebox", "import stores.tables"),
        ("retryctl", "from engine.policy import RetryPolicy"),
        ("triggers", "import retryctl.api"),
    ],
)
def test_the_check_catches_a_violation(layer: str, source: str) -> None:
    assert violations_in(source, layer)


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        (
            "engine",
            "from datetime import UTC, datetime\nfrom engine.policy import RetryPolicy\ndatetime(2026, 1, 1)",
        ),
        ("engine", "from urllib.parse import unquote\nfrom pydantic import BaseModel"),
        ("stores", "from engine.config import parse_config\nimport azure.data.tables"),
        (
            "triggers",
            "from stores.tables import x\nfrom engine.decide import decide\nimport activities.attempt",
        ),
        ("stores", "from telemetry import metrics"),
        ("telemetry", "from engine.operation import OperationInput\nimport opentelemetry.sdk"),
        ("onebox", "from onebox.clock import Clock\nimport time"),
        ("retryctl", "from retryctl.api import Api\nimport httpx"),
    ],
)
def test_the_check_lets_good_imports_pass(layer: str, source: str) -> None:
    assert violations_in(source, layer) == []
