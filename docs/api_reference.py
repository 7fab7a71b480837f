"""Writes docs/http-api.md, the reference of the HTTP API, from the OpenAPI document.

    python -m docs.api_reference

A test compares the file with what this writes.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from durable_retry.api import described
from durable_retry.settings.configuration import APP_ROOT

REFERENCE: Final = APP_ROOT / "docs" / "http-api.md"

_HEAD: Final = """\
# HTTP API

After this page you can call every route: what it takes, what it answers, and with which example. It is
written from `GET /api/openapi.json` by `python -m docs.api_reference`; give that document to a generator
of clients. Call a route with `curl -H 'x-functions-key: KEY'`; on one machine you need no key.

Every error is a problem document (RFC 9457):

```json
PROBLEM
```

`errors` lists every mistake in what you sent, each with its JSON pointer. A 503 has `Retry-After`: send the
same request again. A path below the API that no route has is 404; another method is 405, and `Allow` names
the right ones. Lists answer `items` and `next_cursor`. An unknown query parameter is 400, and the answer
names the known ones. GET answers have an `ETag`: send it back as `If-None-Match`, and you get 304 while
nothing has changed.
"""

_WIDTH: Final = 84
_EVERYWHERE: Final = {"304", "401", "403", "503"}
"""Answers that the head of the page describes."""


def reference() -> str:
    """Return the text of docs/http-api.md."""
    document = described()
    parts = [_HEAD.replace("PROBLEM", _json_text(_problem_of(document)))]
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


def _problem_of(document: Mapping[str, Any]) -> Any:
    responses = document["paths"]["/api/operations"]["post"]["responses"]
    return responses["400"]["content"]["application/problem+json"]["example"]


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


def main() -> None:
    """Write docs/http-api.md anew."""
    REFERENCE.write_text(reference(), encoding="utf-8")
    print(f"wrote {REFERENCE}")


if __name__ == "__main__":
    main()
