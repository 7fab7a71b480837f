"""From a command line to an exit code: nothing that the API or the network does shows as a stack trace."""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TextIO

import httpx

from retryctl import exit_codes
from retryctl.api import Api
from retryctl.environment import KEY, URL
from retryctl.exit_codes import CommandError
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
        argv: Without the program's name; None takes the process's own.
        environ: See `retryctl.environment`.
        out: For answers; None takes standard output.
        err: For what went wrong; None takes standard error.
        transport: In place of the network; None takes the network.

    Returns:
        The exit code, see `retryctl.exit_codes`.
    """
    args = build_parser().parse_args(argv)
    url = args.url or URL.get(environ)
    key = args.key or KEY.get(environ) or None
    screen = Screen(out or sys.stdout, "json" if args.json else "ids" if args.ids else "text")
    code, told = _run(args, url, key, screen, transport)
    if told:
        print(f"retryctl: {told}", file=err or sys.stderr)
    return code


def _run(
    args: Namespace, url: str, key: str | None, screen: Screen, transport: httpx.BaseTransport | None
) -> tuple[int, str]:
    """Return the exit code, and what went wrong ("" for nothing)."""
    try:
        with Api(url, key, transport) as api:
            code: int = args.run(api, args, screen)
            return code, ""
    except CommandError as error:
        return error.exit_code, str(error)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED, "left; what runs goes on"
    except BrokenPipeError:
        # Whoever read along, such as `head`, has seen enough; Python must not complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK, ""
