"""Runs a command: from a command line to an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TextIO

from retryctl import errors
from retryctl.api import COLUMNS, KEY, NO_COLOR, TERM, URL, Api
from retryctl.errors import ApiError, CommandError
from retryctl.layout import CURRENT, Layout
from retryctl.parser import build_parser
from retryctl.screen import Form, Screen

if TYPE_CHECKING:
    from argparse import Namespace

    import httpx


_NOT_KNOWN: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST)


def main(
    argv: Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    out: TextIO | None = None,
    err: TextIO | None = None,
    transport: httpx.BaseTransport | None = None,
) -> int:
    """Run a command; errors of the API and the network never show a stack trace.

    Args:
        argv: Arguments without the program's name; None takes the process's own.
        environ: Variables, see `retryctl.api`.
        out: For answers; None takes standard output.
        err: For errors and notes; None takes standard error.
        transport: Replaces the network in tests; None takes the network.

    Returns:
        The exit code, see `retryctl.errors`.
    """
    args = build_parser().parse_args(argv)
    url = getattr(args, "app_url", None) or args.url or URL.get(environ)
    function_key = args.function_key or KEY.get(environ) or None
    form: Form = "json" if args.json else "ids" if args.ids else "text"
    screen = Screen(out or sys.stdout, err or sys.stderr, form)
    colours = not NO_COLOR.get(environ) and TERM.get(environ) != "dumb"
    layout = Layout.of(out or sys.stdout, colours=colours, columns=COLUMNS.get(environ), is_utc=args.utc)
    CURRENT.set(layout)
    code, message = _run(args, url, function_key, screen, transport)
    if message:
        screen.note(message)
    return code


def _tried(api: Api, args: Namespace, screen: Screen) -> tuple[int, str]:
    """Return what `_run` does; where nothing was found, the name of a dependency may be wrong."""
    name = getattr(args, "dependency", None)
    try:
        code: int = args.run(api, args, screen)
    except ApiError as error:
        if name is None or error.problem.get("status") not in _NOT_KNOWN or "did you mean" in error.text:
            raise
        return error.exit_code, "\n".join(filter(None, (error.text, api.unknown_dependency(name))))
    return code, api.unknown_dependency(name) if name is not None and screen.found_nothing else ""


def _run(
    args: Namespace, url: str, function_key: str | None, screen: Screen, transport: httpx.BaseTransport | None
) -> tuple[int, str]:
    """Return the exit code and an error message ("" for none)."""
    try:
        with Api(url, function_key, transport) as api:
            return _tried(api, args, screen)
    except CommandError as error:
        return error.exit_code, str(error)
    except KeyboardInterrupt:
        return errors.INTERRUPTED, "interrupted; what was started goes on"
    except BrokenPipeError:
        # The reader of the pipe, such as `head`, has ended; without this, Python's flush at exit would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.OK, ""
