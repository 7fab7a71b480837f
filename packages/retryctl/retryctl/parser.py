"""The command line's parser, made of the tables of commands."""

import re
import sys
from argparse import SUPPRESS, ArgumentParser, _ActionsContainer
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, NoReturn, override

from retryctl import (
    __version__,
    alerts,
    bulk,
    dead_letters,
    dependencies,
    doctor,
    errors,
    holding,
    lanes,
    mcp,
    operations,
    outbox,
    replay,
    top,
    workflows,
)
from retryctl.api import Api
from retryctl.commands import Command, Given
from retryctl.options import EVERYWHERE, OneOf, Option, options_of, plain_number
from retryctl.output import Screen

_FILE: Final = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "fish": "(__fish_complete_path (commandline -ct))",
}
"""How each shell completes the name of a file: `shtab.FILE`, without the import."""

_WRONG_WORD: Final = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
"""What argparse says of a word that is none of its choices."""


def _complete(_api: Api, given: Given, _screen: Screen) -> int:
    import shtab  # noqa: PLC0415 - no other command needs it

    sys.stdout.write(shtab.complete(build_parser(), given["shell"]))
    return errors.OK


GROUPS: Final = {
    "circuits": "show and switch the circuits of dependencies",
    "dead-letters": "operations and messages that will not succeed without a person",
    "bulk": "act on many: replay or archive dead letters; cancel, retry now, pause or resume operations",
    "alerts": "conditions over their thresholds, and who gets messages",
    "lanes": "operations of one order key, which run one after the other",
    "outbox": "events that are sent after an operation succeeded",
    "batch": "many operations at once",
    "saga": "steps that are undone by their compensations when one fails",
    "policy": "see what a retry policy does",
}
"""Words before other commands."""

COMMANDS: Final = (
    *(*operations.COMMANDS, *dependencies.COMMANDS, *dead_letters.COMMANDS, *bulk.COMMANDS, *lanes.COMMANDS),
    *(*outbox.COMMANDS, *alerts.COMMANDS, *workflows.COMMANDS, *doctor.COMMANDS),
    *(*replay.COMMANDS, *holding.COMMANDS, *top.COMMANDS, *mcp.COMMANDS),
    Command(
        "completion",
        "print a script that completes commands and options with the Tab key",
        _complete,
        "shell",
    ),
)


class _Parser(ArgumentParser):
    """Answers a wrong word with the nearest that it takes; what is not given is absent from its result."""

    def __init__(self, **more: Any) -> None:
        super().__init__(argument_default=SUPPRESS, **more)
        for type_ in (int, float):
            self.register("type", type_, partial(plain_number, type_))

    @override
    def error(self, message: str) -> NoReturn:
        found = _WRONG_WORD.search(message)
        near = get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), n=1) if found else []
        if found and near:
            message = f"{message[: found.end(1) + 1]}; did you mean {near[0]}?"
        super().error(message)


def build_parser() -> ArgumentParser:
    """Return the parser; its result has what is given, and the command's `run`."""
    parser = _Parser(
        prog="retryctl",
        description="Work with Durable Retry over its HTTP API.",
        epilog=(
            "exit codes: 0 done; 1 the operation failed, or the API refused; 2 the command is wrong; "
            "3 the API does not answer"
        ),
    )
    parser.add_argument("--version", action="version", version=f"retryctl {__version__}")
    _add(parser, EVERYWHERE)
    groups = {"": parser.add_subparsers(metavar="COMMAND", required=True)}
    for command in COMMANDS:
        group, _, name = command.name.rpartition(" ")
        if group not in groups:
            words = GROUPS[group]
            made = groups[""].add_parser(group, help=words, description=words)
            groups[group] = made.add_subparsers(metavar="COMMAND", required=True)
        made = groups[group].add_parser(
            name,
            help=command.words,
            description=command.words,
            epilog="Besides: --url, --function-key, --json and --utc, see `retryctl --help`.",
        )
        made.set_defaults(run=command.run)
        _add(made, options_of(command.takes))
        _add(made, (Option(each.name, {**each.more, "help": SUPPRESS}) for each in EVERYWHERE))
    return parser


def _add(parser: _ActionsContainer, options: Iterable[Option | OneOf]) -> None:
    for each in options:
        if isinstance(each, tuple):
            _add(parser.add_mutually_exclusive_group(), each)
            continue
        action = parser.add_argument(each.name, **each.more)
        if each.name == "file":
            vars(action)["complete"] = _FILE
