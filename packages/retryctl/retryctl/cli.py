"""Runs a command: from a command line to an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from retryctl import errors
from retryctl.api import KEY, URL, Api
from retryctl.commands import run_command
from retryctl.errors import CommandError
from retryctl.output import IN_UTC, Form, Screen
from retryctl.parser import build_parser

if TYPE_CHECKING:
    import httpx

    from retryctl.commands import Run


def main(
    argv: Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    out: TextIO | None = None,
    err: TextIO | None = None,
    transport: httpx.BaseTransport | None = None,
) -> int:
    """Run a command, and return its exit code; errors of the API and the network never show a stack trace.

    Args:
        argv: Without the program's name.
        environ: Variables, see `retryctl.api`.
        transport: Replaces the network in tests.
    """
    given = vars(build_parser().parse_args(argv))
    run: Run = given.pop("run")
    url = given.pop("url", None) or URL.get(environ)
    function_key = given.pop("function_key", None) or KEY.get(environ) or None
    only_ids, as_json = given.pop("only_ids", False), given.pop("as_json", False)
    form: Form = "json" if as_json else "ids" if only_ids else "text"
    IN_UTC.set(given.pop("utc", False))
    screen = Screen(out or sys.stdout, err or sys.stderr, form, environ)
    try:
        with Api(url, function_key, transport) as api:
            return run_command(run, api, given, screen)
    except CommandError as error:
        screen.note(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        screen.note("interrupted; what was started goes on")
        return errors.INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe, such as `head`, has ended; without this, Python's flush at exit would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.OK
