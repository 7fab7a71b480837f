"""Names in backticks of docstrings, comments and messages lead to what is there, also after a rename."""

import ast
import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, Self

import pytest

from scripts.processes import ROOT

FOLDERS: Final = (
    *("durable_retry", "orchestrators", "activities", "entities", "scripts"),
    *(f"packages/{name}" for name in ("client/durable_retry_client", "console/durable_retry_console")),
    *(f"packages/{name}/{name}" for name in ("onebox", "retryctl")),
)
DOTTED: Final = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
PATH: Final = re.compile(r"`((?:\w+/)+[\w.]*)`")
FILE: Final = re.compile(r"\.(json|md|proto|py|toml)$")
SHORT: Final = {"df": "azure.durable_functions"}

DATA: Final = frozenset(
    {
        # Members of documents, of settings and of messages.
        *("circuit.by", "limits.per_key", "dependencies.payments.retry.max_attempts", "sample.reason"),
        *("extensions.queues", "extensions.queues.messageEncoding", "id.timestamp.body", "order.placed"),
        *("instance.head", "handle_event.invocation_request", "http/protobuf"),
        # What stands in an example, or is a parameter.
        *("cart.add", "result.value", "call.progress", "error.response", "given.now"),
        *("context.retry_context", "context.trace_context", "call.client"),
        # Names of other languages and of libraries that are not installed.
        *("google.rpc.RetryInfo", "redis.exceptions.ConnectionError", "redis.ConnectionError"),
        *("RegexRouteConstraint.Match", "DurableClient.StartNewAsync", "BindingInfo.Direction"),
        *("OrchestratorRequest.pastEvents", "Logger.log"),
        # Paths of the API.
        *("operations/summary", "operations/enqueue"),
    }
)
"""What looks like a name of the code, and is none."""


@dataclass
class Names:
    """What the code has: modules by the last of their names, with the names in each; classes with members."""

    modules: dict[str, list[tuple[tuple[str, ...], set[str]]]] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)
    bases: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    @cache
    def of_the_code(cls) -> Self:
        names = cls()
        for file in files():
            parts = file.relative_to(ROOT).with_suffix("").parts
            tree = tree_of(file)
            module = tuple(part for part in parts if part != "__init__")
            found = {*assigned_in(tree), *imported_by(tree)}
            names.modules.setdefault(module[-1], []).append((module, found))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    names.members.setdefault(node.name, set()).update(assigned_in(node))
                    bases = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
                    names.bases.setdefault(node.name, set()).update(bases)
        return names

    def have(self, parts: Sequence[str]) -> bool:
        """Whether a dotted name leads to something, from the end of a module's name or from a class."""
        if parts[0] in self.members:
            return self._has_member(parts[0], parts[1])
        return any(
            module[-cut:] == tuple(parts[:cut]) and (cut == len(parts) or self._is_below(found, parts[cut:]))
            for cut in range(1, len(parts) + 1)
            for module, found in self.modules.get(parts[cut - 1], ())
        )

    def _is_below(self, found: set[str], parts: Sequence[str]) -> bool:
        return parts[0] in found and (len(parts) == 1 or self._has_member(parts[0], parts[1]))

    def _has_member(self, name: str, member: str) -> bool:
        return member in self.members.get(name, ()) or any(
            self._has_member(base, member) for base in self.bases.get(name, ())
        )


@cache
def files() -> tuple[Path, ...]:
    found = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    return tuple(file for file in found if "node_modules" not in file.parts)


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def assigned_in(tree: ast.AST) -> Iterator[str]:
    """The names that a module or a class gives to something, at any depth."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def imported_by(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name.asname or name.name for name in node.names)


def is_installed(file: Path, parts: Sequence[str]) -> bool:
    """Whether a dotted name is of a library, by its whole name or as the file imports it."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                if (name.asname or name.name) == parts[0]:
                    return is_there(importlib.import_module(node.module), [name.name, *parts[1:]])
    try:
        return is_there(importlib.import_module(SHORT.get(parts[0], parts[0])), parts[1:])
    except ImportError:
        return False


def is_there(found: object, parts: Sequence[str]) -> bool:
    """Whether something has a name, by way of others."""
    for at, name in enumerate(parts):
        if not hasattr(found, name) and hasattr(found, "__path__"):
            try:
                importlib.import_module(f"{getattr(found, '__name__', '')}.{name}")
            except ImportError:
                return False
        if not hasattr(found, name):
            return at > 0 and name in getattr(found, "__annotations__", {})
        found = getattr(found, name)
    return True


def leads_somewhere(file: Path, reference: str) -> bool:
    if FILE.search(reference):
        is_python = reference.endswith(".py")
        return (
            not is_python or reference == "conftest.py" or bool([*ROOT.glob(reference), *by_name(reference)])
        )
    parts = reference.split(".")
    return reference in DATA or Names.of_the_code().have(parts) or is_installed(file, parts)


def by_name(name: str) -> list[Path]:
    return [file for file in files() if file.name == name]


def is_path(file: Path, reference: str) -> bool:
    """Whether a path is there, from the root, a package or the file; it begins with a folder, or is none."""
    folders = (ROOT, ROOT / "durable_retry", *(ROOT / folder for folder in FOLDERS), file.parent)
    if reference in DATA or not any((folder / reference.partition("/")[0]).is_dir() for folder in folders):
        return True
    return any((folder / f"{reference}{end}").exists() for folder in folders for end in ("", ".py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_in_backticks_lead_to_what_is_there(folder: str) -> None:
    ours = [file for file in files() if file.is_relative_to(ROOT / folder)]
    lost = {
        f"{file.relative_to(ROOT)}: {reference}"
        for file in ours
        for check, pattern in ((leads_somewhere, DOTTED), (is_path, PATH))
        for reference in pattern.findall(file.read_text(encoding="utf-8"))
        if not check(file, reference)
    }
    assert ours
    assert lost == set()


@pytest.mark.parametrize(
    ("reference", "is_found"),
    [
        ("routes.VERSION", True),
        ("base.validation.with_example", True),
        ("Route.is_conditional", True),
        ("json.dumps", True),
        ("df.DFApp", True),
        ("dispatch.py", True),
        ("routes.NOWHERE", False),
        ("idempotency.Life", False),
        ("Route.is_read", False),
        ("json.write", False),
        ("forgotten.py", False),
    ],
)
def test_a_name_that_is_not_there_is_found(reference: str, is_found: bool) -> None:  # noqa: FBT001 - a column
    assert leads_somewhere(ROOT / "durable_retry/features/openapi/routes.py", reference) is is_found
