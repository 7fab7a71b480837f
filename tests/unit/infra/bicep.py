"""Bicep files read by a grammar, as far as the tests ask. It is no compiler: types stay unchecked."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_bicep.language()))

_SYMBOLS = {"parameter_declaration", "variable_declaration", "module_declaration", "resource_declaration"}
_BINDERS = {"for_statement", "lambda_expression", "loop_variable", "loop_enumerator"}
_OF_BICEP = {"name", "parent", "scope", "dependsOn"}
"""Keys of a resource that Bicep reads itself."""

type Shape = dict[str, Any] | list[str] | str | None
"""What a value may be: an object's properties, `{"*": ...}` for any names, `{"[]": ...}` for a list, words
that are allowed, the name of a plain type, or None for anything."""


@dataclass(frozen=True)
class BicepFile:
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
        return set(self.parameters()) | {_name(node) for node in self._all("variable_declaration")}

    def bound_names(self) -> set[str]:
        """Names that a loop or a lambda binds."""
        return {
            _text(name)
            for node in _walk(self.root)
            if node.type in _BINDERS
            for name in (node.children or [node])
            if name.type == "identifier" or name is node
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

    def resources(self) -> Iterator[tuple[str, Node]]:
        """Each resource that is created: its type, with those that it stands in, and its body."""
        for node in self._all("resource_declaration"):
            if any(child.type == "existing" or _text(child) == "existing" for child in node.children):
                continue
            kinds = [_string(outer).split("@")[0] for outer in reversed([node, *_outer_resources(node)])]
            yield "/".join(kinds), node.named_children[-1]

    def misfits(self, shapes: dict[str, Shape]) -> list[str]:
        """What does not fit the shape of its resource type, as `type: path: what`."""
        return [
            f"{kind}: {wrong}" if kind in shapes else f"{kind}: no shape"
            for kind, body in self.resources()
            for wrong in (self._misfits(body, shapes[kind], "") if kind in shapes else [""])
        ]

    def _misfits(self, value: Node, shape: Shape, path: str) -> Iterator[str]:
        match value.type:
            case "object" if shape is not None:
                yield from self._object_misfits(value, shape, path)
            case "array" if isinstance(shape, dict) and "[]" in shape:
                for item in value.named_children:
                    yield from self._misfits(item, shape["[]"], f"{path}[]")
            case "call_expression" if isinstance(shape, dict) and _text(value).startswith("map("):
                yield from self._misfits(value.named_children[-1].named_children[1], shape["[]"], f"{path}[]")
            case "array" if shape is not None:
                yield f"{path}: a list"
            case "string":
                yield from _word_misfits(_text(value).strip("'"), shape, path)
            case "number" | "boolean":
                wanted = {"number": ("int", "float"), "boolean": ("bool",)}[value.type]
                if shape is not None and shape not in wanted:
                    yield f"{path}: a {value.type}"
            case _:
                for part in self._parts(value):
                    yield from self._misfits(part, shape, path)

    def _object_misfits(self, value: Node, shape: Shape, path: str) -> Iterator[str]:
        if not isinstance(shape, dict) or "[]" in shape:
            yield f"{path}: an object"
            return
        for node in value.named_children:
            if node.type != "object_property" or node.children[0].type == "resource_declaration":
                continue
            key = _text(node.children[0])
            if "*" in shape or (not path and key in _OF_BICEP):
                continue
            if key not in shape:
                yield f"{path}.{key}: no such property"
            else:
                yield from self._misfits(node.named_children[-1], shape[key], f"{path}.{key}")

    def _parts(self, value: Node) -> list[Node]:
        """What an expression may become, as far as it stands in this file."""
        match value.type:
            case "ternary_expression":
                return value.named_children[1:]
            case "for_statement" | "if_statement":
                return value.named_children[-1:]
            case "lambda_expression":
                return value.named_children[-1:]
            case "identifier" if _text(value) in self.values() - self.parameters().keys():
                return [self.variable(_text(value))]
            case "call_expression":
                return self._arguments(value)
            case _:
                return []

    def _arguments(self, call: Node) -> list[Node]:
        given = call.named_children[-1].named_children
        match _text(call.named_children[0]):
            case "union" | "concat":
                return given
            case "filter":
                return given[:1]
            case _:
                return []

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


def _outer_resources(node: Node) -> Iterator[Node]:
    above = node.parent
    while above is not None:
        if above.type == "resource_declaration":
            yield above
        above = above.parent


def _word_misfits(word: str, shape: Shape, path: str) -> Iterator[str]:
    """An interpolated string is known only when it runs."""
    if isinstance(shape, list) and "${" not in word and word not in shape:
        yield f"{path}: {word}, not one of {', '.join(shape)}"
    elif shape is not None and not isinstance(shape, list) and shape != "str":
        yield f"{path}: a string"
