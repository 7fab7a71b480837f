"""JSON bodies: read from files, or made from options."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from retryctl.errors import UsageError

_STDIN: Final = "-"


def read_document(name: str) -> Any:
    """Return the JSON document in a file; `-` is standard input.

    Raises:
        UsageError: The file cannot be read, or is not JSON.
    """
    try:
        text = sys.stdin.read() if name == _STDIN else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: {error}") from None
    return parse_json(text, name)


def parse_json(text: str, origin: str) -> Any:
    """Return the document of a JSON text.

    Args:
        text: JSON.
        origin: The option or file that it comes from, for the message.

    Raises:
        UsageError: The text is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{origin}: is not JSON: {error}") from None


def retry_table(settings: Iterable[str]) -> dict[str, Any]:
    """Parse `name=value` settings of a retry policy; a value that is not JSON is text.

    Raises:
        UsageError: A setting has no `=`.
    """
    return {name: _value(text) for name, text in (parse_pair(each, "=", "--retry") for each in settings)}


def parse_pair(text: str, separator: str, option: str) -> tuple[str, str]:
    """Return the name and the value of an option's argument.

    Raises:
        UsageError: The separator or the name is missing.
    """
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise UsageError(f"{option}: must look like NAME{separator}VALUE, not {text!r}")
    return name.strip(), value.strip()


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def given_options(args: Namespace, *names: str) -> dict[str, Any]:
    """Return the options of these names that a command line gives."""
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def pause_options(args: Namespace) -> dict[str, Any]:
    """Return the options of a pause, or of many, that a command line gives."""
    options = given_options(args, "reason", "for_seconds")
    return options | ({"stops_deadline": True} if args.stop_deadline else {})


def replay_options(args: Namespace) -> dict[str, Any]:
    """Return the options of a replay, or of many, that a command line gives.

    Raises:
        UsageError: A change is not JSON, or a setting has no `=`.
    """
    options: dict[str, Any] = {}
    if args.patch is not None:
        options["patch"] = parse_json(args.patch, "--patch")
    for text in args.set:
        pointer, value = parse_pair(text, "=", "--set")
        step = {"op": "replace", "path": pointer, "value": _value(value)}
        options["patch"] = [*options.get("patch", ()), step]
    return options | given_options(args, "downstream_key", "from_step", "note")
