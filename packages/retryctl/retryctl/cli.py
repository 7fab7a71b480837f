"""From a command line to an exit code; errors of the API and the network never show a stack trace."""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TextIO

import httpx

from retryctl import errors
from retryctl.api import Api
from retryctl.environment import KEY, URL
from retryctl.errors import CommandError
from retryctl.parser import build_parser
from retryctl.screen import Screen


def main(
    argv: Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    out: TextIO | None = None,
    err: TextIO | None = None,
    transport: httpx.BaseTransport | None = None,
) -> int:
    """Run a command.

    Args:
        argv: Arguments without the program's name; None takes the process's own.
        environ: Variables, see `retryctl.environment`.
        out: For answers; None takes standard output.
        err: For errors; None takes standard error.
        transport: Replaces the network in tests; None takes the network.

    Returns:
        The exit code, see `retryctl.errors`.
    """
    args = build_parser().parse_args(argv)
    url = args.url or URL.get(environ)
    function_key = args.function_key or KEY.get(environ) or None
    screen = Screen(out or sys.stdout, "json" if args.json else "ids" if args.ids else "text")
    code, message = _run(args, url, function_key, screen, transport)
    if message:
        print(f"retryctl: {message}", file=err or sys.stderr)
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
