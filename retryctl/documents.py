"""Bodies to send: read from files or put together from options."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from retryctl.exit_codes import UsageError

_STDIN: Final = "-"


def read_document(name: str) -> Any:
    """Return the JSON of a file; `-` is standard input.

    Raises:
        UsageError: It cannot be read, or is not JSON.
    """
    try:
        text = sys.stdin.read() if name == _STDIN else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: {error}") from None
    return parse_json(text, name)


def parse_json(text: str, place: str) -> Any:
    """Return a JSON text's document.

    Raises:
        UsageError: It is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{place}: is not JSON: {error}") from None


def operation_body(args: Namespace) -> dict[str, Any]:
    """Put an operation together from options.

    Raises:
        UsageError: They do not make one.
    """
    if (args.dependency is None) == (args.handler is None):
        raise UsageError("give a file, or --dependency with --method and --path, or --handler with --input")
    if args.handler is not None:
        what: dict[str, Any] = {"handler": args.handler, "input": parse_json(args.input, "--input")}
    else:
        what = {"dependency": args.dependency, "request": _request(args)}
    options = {
        "key": args.key_of_operation,
        "correlation_id": args.correlation_id,
        "deadline_seconds": args.deadline_seconds,
        "retry": retry_table(args.retry) or None,
    }
    return what | {name: value for name, value in options.items() if value is not None}


def _request(args: Namespace) -> dict[str, Any]:
    request: dict[str, Any] = {
        "method": args.method,
        "path": args.path,
        "query": dict(_pair(text, "=", "--query") for text in args.query),
        "headers": dict(_pair(text, ":", "--header") for text in args.header),
    }
    if args.body is not None:
        request["json"] = parse_json(args.body, "--body")
    return request


def retry_table(settings: Iterable[str]) -> dict[str, Any]:
    """Read `name=value` settings of a retry policy; a value is JSON where it can be, else text.

    Raises:
        UsageError: One has no `=`.
    """
    return {name: _value(text) for name, text in (_pair(each, "=", "--retry") for each in settings)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _pair(text: str, mark: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition(mark)
    if not found or not name.strip():
        raise UsageError(f"{option}: must look like NAME{mark}VALUE, not {text!r}")
    return name.strip(), value.strip()
