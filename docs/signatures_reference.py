"""The tables of docs/api.md: each name with its signature and its first sentence, from the code.

Each table stands above a comment with the directives that the site has in its place (`published`):

    <!-- eval-rst
    .. currentmodule:: durable_retry
    .. autofunction:: register
    -->
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any, Final

from pydantic import BaseModel

from docs.tables import table

_DIRECTIVES: Final = re.compile(r"<!-- eval-rst\n(.*?)-->\n", re.DOTALL)
_ENTRY: Final = re.compile(r"^\.\. auto\w+:: (\w+)\n((?:   .*\n)*)", re.MULTILINE)
_HEAD: Final = ("name", "what it is")


def tables(text: str) -> Iterator[str]:
    """Give the table of each module of the page."""
    for block in _DIRECTIVES.findall(text):
        module = import_module(re.search(r"currentmodule:: (\S+)", block)[1])  # type: ignore[index]
        yield table(
            _HEAD, (row for name, options in _ENTRY.findall(block) for row in _rows(module, name, options))
        )


def published(text: str) -> str:
    """Return the page with what Sphinx makes of each name."""
    return _DIRECTIVES.sub(lambda match: f"```{{eval-rst}}\n{match[1]}```\n", text)


def _rows(module: Any, name: str, options: str) -> Iterator[tuple[str, str]]:
    value = getattr(module, name)
    yield _row(name, value)
    if ":members:" in options:
        named = re.search(r":members: (.*)", options)
        members = named[1].split(", ") if named else _members(value, inherited=":inherited" in options)
        excluded = re.search(r":exclude-members: (.*)", options)
        left_out = set(excluded[1].split(", ")) if excluded else set()
        for member in members:
            if member not in left_out:
                yield _row(f"{name}.{member}", getattr(value, member))


def _members(value: type, *, inherited: bool) -> list[str]:
    """Return the public methods and properties, in the order of the source."""
    classes = value.__mro__[:-1] if inherited else (value,)
    names = (name for each in classes for name in vars(each) if not name.startswith("_"))
    return [
        name
        for name in names
        if isinstance(member := getattr(value, name), property | MethodType | FunctionType) and member.__doc__
    ]


def _row(name: str, value: Any) -> tuple[str, str]:
    sentence = re.split(r"(?<=[.;])\s", " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()))[0]
    return f"`{name}{_signature(value)}`", sentence.rstrip(".;")


def _signature(code: Any) -> str:
    """Return the parameters with their defaults; types stand in the code."""
    if isinstance(code, property):
        return ""
    if isinstance(code, type) and issubclass(code, BaseModel):
        code.model_rebuild(force=True)  # before a model is first used it shows no parameters
    try:
        signature = inspect.signature(code)
    except ValueError:
        return ""
    parameters = [
        each.replace(annotation=each.empty) for name, each in signature.parameters.items() if name != "self"
    ]
    return re.sub(r"<.*?>|mappingproxy\(\{\}\)", "...", str(inspect.Signature(parameters)))
