"""Bicep files read by a grammar, as far as the tests ask. It is no compiler: types stay unchecked."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_bicep.language()))

_SYMBOLS = {"parameter_declaration", "variable_declaration", "module_declaration", "resource_declaration"}
_BINDERS = {"for_statement", "lambda_expression"}


@dataclass(frozen=True)
class BicepFile:
    """One parsed file."""

    path: Path
    text: bytes

    @classmethod
    def read(cls, path: Path) -> "BicepFile":
        return cls(path, path.read_bytes())

    @cached_property
    def root(self) -> Node:
        return _PARSER.parse(self.text).root_node

    def mistakes(self) -> list[str]:
        """Where the grammar does not hold, as `line: text`."""
        wrong = [node for node in _walk(self.root) if node.is_error or node.is_missing]
        return [f"{node.start_point.row + 1}: {_text(node)}" for node in wrong]

    def parameters(self) -> dict[str, bool]:
        """Each parameter's name, and whether it has to be given."""
        return {
            _name(node): not any(_text(child) == "=" for child in node.children)
            for node in self._all("parameter_declaration")
        }

    def outputs(self) -> set[str]:
        return {_name(node) for node in self._all("output_declaration")}

    def modules(self) -> dict[str, tuple[Path, set[str]]]:
        """Each module's symbol, its file, and the parameters that it is given."""
        return {
            _name(node): (self.path.parent / _string(node), _keys(_member(node, "params")))
            for node in self._all("module_declaration")
        }

    def outputs_used(self) -> set[tuple[str, str]]:
        """What is taken of modules, as (symbol, output)."""
        parts = [_text(node).replace("!", "").split(".") for node in self._all("member_expression")]
        return {(part[0], part[2]) for part in parts if part[1:2] == ["outputs"] and len(part) > 2}

    def symbols(self) -> set[str]:
        return {_name(node) for kind in _SYMBOLS for node in self._all(kind)}

    def values(self) -> set[str]:
        """Parameters and variables."""
        return set(self.parameters()) | {_name(node) for node in self._all("variable_declaration")}

    def bound_names(self) -> set[str]:
        """Names that a loop or a lambda binds."""
        return {
            _text(name)
            for node in _walk(self.root)
            if node.type in _BINDERS
            for name in node.children
            if name.type == "identifier"
        }

    def names_used(self) -> set[str]:
        """Identifiers that stand for a value."""
        return {_text(node) for node in self._all("identifier") if _is_value(node)}

    def variable(self, name: str) -> Node:
        """The value of a variable."""
        found = next(node for node in self._all("variable_declaration") if _name(node) == name)
        return found.named_children[-1]

    def keys_of(self, variable: str) -> set[str]:
        """The keys of every object in a variable's value."""
        objects = [node for node in _walk(self.variable(variable)) if node.type == "object"]
        return {key for node in objects for key in _keys(node)}

    def strings(self) -> list[str]:
        """What stands in quotes, in order."""
        return [_text(node) for node in self._all("string_content")]

    def _all(self, kind: str) -> list[Node]:
        return [node for node in _walk(self.root) if node.type == kind]


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _name(declaration: Node) -> str:
    return _text(next(child for child in declaration.children if child.type == "identifier"))


def _string(declaration: Node) -> str:
    return _text(next(child for child in declaration.children if child.type == "string")).strip("'")


def _member(declaration: Node, key: str) -> Node | None:
    """The object under a key of a declaration's body."""
    for node in _walk(declaration):
        if node.type == "object_property" and _text(node.children[0]) == key:
            return node.named_children[-1]
    return None


def _keys(body: Node | None) -> set[str]:
    properties = [] if body is None else [node for node in body.children if node.type == "object_property"]
    return {_text(node.children[0]) for node in properties}


def _is_value(identifier: Node) -> bool:
    """Whether it is neither the name of what is declared or called nor the key of a property."""
    above = identifier.parent
    if above is None:
        return False
    if above.type in {"call_expression", "output_declaration", *_SYMBOLS}:
        return identifier != next(child for child in above.children if child.type == "identifier")
    return above.type != "object_property" or identifier != above.children[0]
