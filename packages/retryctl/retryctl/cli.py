"""Runs a command: from a command line to an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from retryctl import errors
from retryctl.api import KEY, URL, Api
from retryctl.errors import CommandError
from retryctl.parser import build_parser
from retryctl.screen import Form, Screen

if TYPE_CHECKING:
    from argparse import Namespace

    import httpx


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
    code, message = _run(args, url, function_key, screen, transport)
    if message:
        screen.note(message)
    return code


def _run(
    args: Namespace, url: str, function_key: str | None, screen: Screen, transport: httpx.BaseTransport | None
) -> tuple[int, str]:
    """Return the exit code and an error message ("" for none)."""
    try:
        with Api(url, function_key, transport) as api:
            code: int = args.run(api, args, screen)
            return code, ""
    except CommandError as error:
        return error.exit_code, str(error)
    except KeyboardInterrupt:
        return errors.INTERRUPTED, "interrupted; what was started goes on"
    except BrokenPipeError:
        # The reader of the pipe, such as `head`, has ended; without this, Python's flush at exit would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.OK, ""
