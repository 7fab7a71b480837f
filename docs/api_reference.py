"""The routes of the HTTP API, from the OpenAPI document: a table in its page, a reference on the site."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from docs.tables import table, with_tables
from durable_retry.features.openapi.routes import described

_WIDTH: Final = 84
_EVERYWHERE: Final = {"304", "401", "403", "503"}
"""Answers that the head of the page describes."""


def routes(text: str) -> str:
    """Return the text of docs/http-api.md with its table of routes."""
    rows = (
        (f"`{method.upper()} {path}`", *_columns(operation))
        for path, methods in described()["paths"].items()
        for method, operation in methods.items()
    )
    return with_tables(text, [table(("route", "what it does", "takes", "answers"), rows)])


def _columns(operation: Mapping[str, Any]) -> Iterator[str]:
    yield re.split(r"(?<=[.;:])\s", operation["description"])[0].rstrip(".;:")
    names = [each["name"] for each in operation["parameters"] if each["name"] != "If-None-Match"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    members = list(body["example"]) if body is not None and isinstance(body["example"], dict) else []
    yield ", ".join([*(f"`{name}`" for name in names), *(f"`/{name}`" for name in members)])
    yield ", ".join(code for code in operation["responses"] if code not in _EVERYWHERE)


def reference(text: str) -> str:
    """Return the text of docs/http-api.md with every route behind it."""
    document = described()
    parts = [text]
    for tag in document["tags"]:
        name = tag["name"]
        parts.append(f"## {name[:1].upper()}{name[1:]}\n\n{tag['description']}\n")
        parts += [
            _route_text(method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if name in operation["tags"]
        ]
    return "\n".join(parts)


def _route_text(method: str, path: str, operation: Mapping[str, Any]) -> str:
    verb = method.upper()
    lines = [f"### {verb} {path}", "", operation["description"], ""]
    if rows := list(_parameter_rows(operation)):
        lines += ["| parameter | in | what it is |", "|---|---|---|", *rows, ""]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None:
        lines += [f"```json body={verb}:{path}", _json_text(body["example"]), "```", ""]
    lines += ["| answer | what it means |", "|---|---|"]
    answers = {code: answer for code, answer in operation["responses"].items() if code not in _EVERYWHERE}
    lines += [f"| {code} | {answer['description']} |" for code, answer in answers.items()]
    first = min(answers)
    example = answers[first].get("content", {}).get("application/json", {}).get("example")
    if example is not None:
        lines += ["", f"```json answer={verb}:{path}", _json_text(example), "```"]
    return "\n".join(lines) + "\n"


def _parameter_rows(operation: Mapping[str, Any]) -> Iterator[str]:
    for each in operation["parameters"]:
        if each["name"] != "If-None-Match":
            words = ", ".join(f"`{word}`" for word in each["schema"].get("enum", ()))
            choices = f" One of {words}." if words else ""
            yield f"| `{each['name']}` | {each['in']} | {each['description']}{choices} |"


def _json_text(value: Any, depth: int = 0) -> str:
    """Return JSON as a person would write it: what fits on a line stands on one."""
    text = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or len(text) + 2 * depth <= _WIDTH:
        return text
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict):
        items = [f"{json.dumps(name)}: {_json_text(each, depth + 1)}" for name, each in value.items()]
        return "{\n" + ",\n".join(inner + item for item in items) + f"\n{outer}" + "}"
    return "[\n" + ",\n".join(inner + _json_text(each, depth + 1) for each in value) + f"\n{outer}]"
