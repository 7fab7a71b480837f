"""Options that several commands share."""

import re
from argparse import SUPPRESS, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, Final, NoReturn, override

from retryctl.api import Api
from retryctl.screen import Screen

type Command = Callable[[Api, Namespace, Screen], int]
type Commands = _SubParsersAction[GuessingParser]

INSTANT: Final = "such as 2026-11-22T09:00:00Z"

PRIORITIES: Final = ("high", "normal", "low")

EXACT_IDS: Final = ("key", "correlation_id")
"""What `with_exact_ids` takes."""

TURN_NAMES: Final = ("order_key", "debounce_key", "priority")
"""What `with_turn_names` takes."""

_FILE: Final = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "fish": "(__fish_complete_path (commandline -ct))",
}
"""How each shell completes the name of a file: `shtab.FILE`, without the import."""

_WRONG_WORD: Final = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
"""What argparse says of a word that is none of its choices."""

_EVERYWHERE: Final = "Besides: --url, --function-key, --json and --utc, see `retryctl --help`."


class GuessingParser(ArgumentParser):
    """Answers a wrong word with the nearest that it takes."""

    @override
    def error(self, message: str) -> NoReturn:
        found = _WRONG_WORD.search(message)
        near = get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), n=1) if found else []
        if found and near:
            message = f"{message[: found.end(1) + 1]}; did you mean {near[0]}?"
        super().error(message)


def add_command(commands: Commands, name: str, run: Command, words: str) -> ArgumentParser:
    """Add a command that can be run."""
    command = commands.add_parser(name, help=words, description=words, epilog=_EVERYWHERE)
    # The global options work behind the command too. A default here would overwrite the value before it.
    command.add_argument("--url", default=SUPPRESS, help=SUPPRESS)
    command.add_argument("--function-key", default=SUPPRESS, help=SUPPRESS)
    command.add_argument("--json", action="store_true", default=SUPPRESS, help=SUPPRESS)
    command.add_argument("--utc", action="store_true", default=SUPPRESS, help=SUPPRESS)
    command.set_defaults(run=run, ids=False)
    return command


def add_group(commands: Commands, name: str, words: str) -> Commands:
    """Add a word before other commands."""
    group = commands.add_parser(name, help=words, description=words)
    return group.add_subparsers(metavar="COMMAND", required=True)


def with_id(command: ArgumentParser, of: str) -> ArgumentParser:
    """Take an id; return the command."""
    command.add_argument("id", help=f"of the {of}")
    return command


def with_file(command: ArgumentParser, words: str, **more: Any) -> None:
    """Take a file with JSON."""
    vars(command.add_argument("file", help=f"{words}; - is standard input", **more))["complete"] = _FILE


def with_choice(command: ArgumentParser, option: str, words: Sequence[str]) -> None:
    """Take one of some words."""
    command.add_argument(
        option, choices=words, metavar=option.removeprefix("--").upper(), help=", ".join(words)
    )


def with_limit(command: ArgumentParser, default: int = 50) -> None:
    """Take the most items that are listed."""
    limit = command.add_mutually_exclusive_group()
    limit.add_argument("--limit", type=int, default=default, help=f"most items (default: {default})")
    limit.add_argument("--all", dest="limit", action="store_const", const=None, help="list every item")


def with_list(command: ArgumentParser) -> None:
    """Take what a list of things with ids takes."""
    with_limit(command)
    command.add_argument("--ids", action="store_true", help="write only the ids, one per line")


def with_key(command: ArgumentParser, of: str) -> None:
    """Take an idempotency key."""
    words = f"idempotency key: with the same key the {of} is started once; made and shown when absent"
    command.add_argument("--key", help=words)


def with_watch(command: ArgumentParser) -> None:
    """Offer to follow what is started."""
    command.add_argument("--watch", action="store_true", help="follow it until it ends")


def with_retry(command: ArgumentParser) -> None:
    """Take changes of the retry policy."""
    command.add_argument(
        "--retry",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change one setting of the retry policy, such as max_attempts=3; may be repeated",
    )
    command.add_argument(
        "--deadline-seconds", type=float, metavar="SECONDS", help="for the whole operation, waits included"
    )


def with_edit(command: ArgumentParser) -> None:
    """Take one change of each dead letter."""
    words = (
        "put a value in the place of the one at a JSON pointer, such as /request/json/amount=6; repeatable"
    )
    command.add_argument("--set", action="append", default=[], metavar="POINTER=JSON", help=words)
    command.add_argument(
        "--patch", metavar="JSON", help="a JSON patch (RFC 6902) of each, as a list of steps"
    )
    words = "run this remembered step of a handler and those that began after it again"
    command.add_argument("--from-step", metavar="STEP", help=words)
    words = "key that the dependency deduplicates on; default: new when the request or input changed"
    command.add_argument("--downstream-key", choices=("same", "new"), help=words)


def with_pause(command: ArgumentParser) -> None:
    """Take how long a pause lasts."""
    command.add_argument(
        "--for-seconds", type=float, metavar="SECONDS", help="until it is resumed, if not given"
    )
    command.add_argument(
        "--stop-deadline", action="store_true", help="add the time of the pause to its deadline"
    )


def with_filters(command: ArgumentParser, reason: str = "such as RetriesExhausted") -> None:
    """Take what dead letters are chosen by.

    Args:
        command: Takes it.
        reason: What the option `--reason` is.
    """
    command.add_argument("--reason", help=reason)
    command.add_argument("--category", help="of the failure, such as transient")
    command.add_argument("--group", help="root cause, from `dead-letters groups`")
    with_turn_names(command)
    with_dependency_and_times(command)


def with_dependency_and_times(command: ArgumentParser) -> None:
    """Take a dependency and a span of time."""
    command.add_argument("--dependency", help="name in dependencies.toml")
    command.add_argument("--created-after", metavar="INSTANT", help=INSTANT)
    command.add_argument("--created-before", metavar="INSTANT", help=INSTANT)


def with_turn(submit: ArgumentParser) -> None:
    """Take when an operation begins, and what it waits for."""
    begin = submit.add_mutually_exclusive_group()
    begin.add_argument("--start-at", metavar="INSTANT", help=f"begin then, {INSTANT}")
    begin.add_argument("--delay-seconds", type=float, metavar="SECONDS", help="begin so much later")
    submit.add_argument(
        "--order-key", metavar="KEY", help="run one after the other with those of the same KEY"
    )
    then = "what those behind it do when it ends as a dead letter: wait, or go on"
    submit.add_argument("--order-on-failure", choices=("block", "skip"), help=then)
    with_choice(submit, "--priority", PRIORITIES)
    words = "a later submission with this key replaces this one while it waits"
    submit.add_argument("--debounce-key", metavar="KEY", help=words)
    begin.add_argument(
        "--debounce-seconds", type=float, metavar="SECONDS", help="wait so long for a later one"
    )
    words = "begin after so long though later ones come; ten times --debounce-seconds unless given"
    submit.add_argument("--debounce-max-seconds", type=float, metavar="SECONDS", help=words)


def with_exact_ids(command: ArgumentParser) -> None:
    """Take a whole key or correlation id."""
    command.add_argument("--key", help="the whole key")
    command.add_argument("--correlation-id", metavar="ID", help="the whole correlation id")


def with_turn_names(command: ArgumentParser) -> None:
    """Take the names that decide when operations have their turns."""
    command.add_argument("--order-key", metavar="KEY", help="the whole order key")
    command.add_argument("--debounce-key", metavar="KEY", help="the whole debounce key")
    with_choice(command, "--priority", PRIORITIES)


def with_query(command: ArgumentParser) -> None:
    """Take words to look for."""
    command.add_argument(
        "--q", metavar="WORDS", help="words in a key, the correlation id, an id or the error"
    )


def with_origin(command: ArgumentParser) -> None:
    """Take where an operation came from, and when."""
    command.add_argument("--handler", help="name of the handler")
    command.add_argument("--source", help="where it came from, such as http, queue, batch")
    with_turn_names(command)
    with_dependency_and_times(command)
