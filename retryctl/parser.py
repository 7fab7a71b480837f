"""The commands and their options."""

from argparse import SUPPRESS, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable
from typing import Final

from retryctl import batches, circuits, dead_letters, dependencies, operations, outbox, replays, sagas
from retryctl.api import Api
from retryctl.environment import KEY, URL
from retryctl.screen import Screen

type Command = Callable[[Api, Namespace, Screen], int]
type Commands = _SubParsersAction[ArgumentParser]

_DEFAULT_LIMIT: Final = 50

_EPILOG: Final = """exit codes: 0 done; 1 it ended badly, or the API refused; 2 the command is wrong;
3 the API does not answer"""


def build_parser() -> ArgumentParser:
    """Return the parser; what it parses has the command as `run`."""
    parser = ArgumentParser(prog="retryctl", description=__doc__, epilog=_EPILOG)
    parser.description = "Work with Durable Retry over its HTTP API."
    parser.add_argument("--url", help=f"base URL; else {URL.name}, else {URL.default}")
    parser.add_argument("--key", help=f"function key; else {KEY.name}")
    parser.add_argument("--json", action="store_true", help="answer with JSON, for programs")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _operations(commands)
    _circuits(commands)
    _dead_letters(commands)
    _replays(commands)
    _outbox(commands)
    _wholes(commands)
    _dependencies(commands)
    return parser


def _command(commands: Commands, name: str, run: Command, words: str) -> ArgumentParser:
    command = commands.add_parser(name, help=words, description=words)
    # Also behind the command; without a default, so that it does not undo what stands before it.
    command.add_argument("--url", default=SUPPRESS, help=SUPPRESS)
    command.add_argument("--key", default=SUPPRESS, help=SUPPRESS)
    command.add_argument("--json", action="store_true", default=SUPPRESS, help=SUPPRESS)
    command.set_defaults(run=run, ids=False)
    return command


def _group(commands: Commands, name: str, words: str) -> Commands:
    group = commands.add_parser(name, help=words, description=words)
    return group.add_subparsers(metavar="COMMAND", required=True)


def _with_id(command: ArgumentParser) -> ArgumentParser:
    command.add_argument("id")
    return command


def _with_limit(command: ArgumentParser) -> None:
    limit = command.add_mutually_exclusive_group()
    limit.add_argument("--limit", type=int, default=_DEFAULT_LIMIT, help="the most to list (default: 50)")
    command.add_argument("--ids", action="store_true", help="only the ids, one in each line")
    limit.add_argument("--all", dest="limit", action="store_const", const=None, help="list all there are")


def _with_watch(command: ArgumentParser) -> None:
    command.add_argument("--watch", action="store_true", help="stay until it ends")


def _operations(commands: Commands) -> None:
    submit = _command(commands, "submit", operations.submit, "hand an operation in")
    submit.add_argument("file", nargs="?", help="its JSON body; - is standard input")
    submit.add_argument("--dependency")
    submit.add_argument("--method", default="POST", help="default: POST")
    submit.add_argument("--path", default="", help="below the dependency's base URL")
    submit.add_argument("--query", action="append", default=[], metavar="NAME=VALUE")
    submit.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    submit.add_argument("--body", metavar="JSON", help="of the request")
    submit.add_argument("--handler", help="instead of --dependency")
    submit.add_argument("--input", default="null", metavar="JSON", help="of the handler")
    submit.add_argument("--operation-key", dest="key_of_operation", help="idempotency key")
    submit.add_argument("--correlation-id")
    submit.add_argument("--deadline-seconds", type=float)
    submit.add_argument(
        "--retry", action="append", default=[], metavar="NAME=VALUE", help="as in a retry table"
    )
    submit.add_argument("--wait", type=int, metavar="SECONDS", help="wait for the end, at most 30 s")
    _with_watch(submit)
    _with_id(_command(commands, "get", operations.get, "show an operation"))
    _with_id(_command(commands, "watch", operations.watch, "follow an operation to its end"))
    listed = _command(commands, "list", operations.list_all, "list operations")
    listed.add_argument("--status")
    listed.add_argument("--dependency")
    listed.add_argument("--created-after", metavar="INSTANT")
    _with_limit(listed)
    _with_id(_command(commands, "cancel", operations.cancel, "cancel an operation"))
    _with_id(_command(commands, "retry-now", operations.retry_now, "end an operation's present wait"))


def _circuits(commands: Commands) -> None:
    group = _group(commands, "circuits", "circuits of dependencies")
    _command(group, "list", circuits.list_all, "list circuits")
    _command(group, "show", circuits.show, "show a circuit").add_argument("dependency")
    for act, words in (
        ("open", "let no attempt through"),
        ("close", "close it, letting go what waits"),
        ("disable", "let everything through"),
        ("reset", "close it and forget what it counted"),
    ):
        command = _command(group, act, circuits.by_hand, words)
        command.add_argument("dependency")
        command.add_argument("--reason", required=True, help="why, for whoever looks later")
        command.set_defaults(act=act, for_seconds=None)
        if act in {"open", "disable"}:
            command.add_argument("--for-seconds", type=float, metavar="SECONDS")


def _with_filters(command: ArgumentParser) -> None:
    for name in ("reason", "category", "dependency", "group"):
        command.add_argument(f"--{name}")
    command.add_argument("--created-after", metavar="INSTANT")
    command.add_argument("--created-before", metavar="INSTANT")


def _dead_letters(commands: Commands) -> None:
    group = _group(commands, "dead-letters", "what will not succeed without a person")
    listed = _command(group, "list", dead_letters.list_all, "list dead letters")
    listed.add_argument("--status", help="open, replayed or archived")
    _with_filters(listed)
    _with_limit(listed)
    _with_limit(_command(group, "groups", dead_letters.groups, "list root causes of open ones"))
    _command(group, "summary", dead_letters.summary, "count the open ones")
    _with_id(_command(group, "show", dead_letters.show, "show a dead letter"))
    replay = _with_id(_command(group, "replay", dead_letters.replay, "start one again, under the same key"))
    replay.add_argument("--request", metavar="JSON", help="keys of the request to replace")
    replay.add_argument("--input", metavar="JSON", help="in place of a handler's input")
    replay.add_argument("--note", help="why, for whoever looks later")
    _with_id(_command(group, "archive", dead_letters.archive, "put one away"))
    _with_id(_command(group, "restore", dead_letters.restore, "bring an archived one back"))
    _with_id(_command(group, "note", dead_letters.note, "write a note on one")).add_argument("text")


def _replays(commands: Commands) -> None:
    group = _group(commands, "replays", "replays of many dead letters")
    start = _command(group, "start", replays.start, "replay every open dead letter that the filters find")
    _with_filters(start)
    start.add_argument("--rate", type=float, metavar="PER_SECOND", help="default: 5")
    start.add_argument("--note", help="why, kept with each")
    start.add_argument("--dry-run", action="store_true", help="only count")
    _with_watch(start)
    _with_id(_command(group, "show", replays.show, "show how far one got"))
    _with_id(_command(group, "watch", replays.watch, "follow one to its end"))
    _with_id(_command(group, "cancel", replays.cancel, "cancel one"))


def _outbox(commands: Commands) -> None:
    group = _group(commands, "outbox", "follow-up messages")
    listed = _command(group, "list", outbox.list_all, "list events of one state")
    listed.add_argument("--state", help="pending (the default), sent or failed")
    _with_limit(listed)
    _with_id(_command(group, "resend", outbox.resend, "send an event once more"))


def _wholes(commands: Commands) -> None:
    group = _group(commands, "batch", "many operations at once")
    submit = _command(group, "submit", batches.submit, "hand a batch in")
    submit.add_argument("file", help="JSON: a list of operations, or the whole body; - is standard input")
    submit.add_argument("--max-concurrency", type=int)
    submit.add_argument("--tolerated-failures", type=int)
    submit.add_argument("--batch-key", dest="key_of_work", help="idempotency key")
    _with_watch(submit)
    _with_id(_command(group, "show", batches.show, "show a batch, item by item"))
    _with_id(_command(group, "watch", batches.watch, "follow a batch to its end"))
    group = _group(commands, "saga", "steps that are undone when one fails")
    submit = _command(group, "submit", sagas.submit, "hand a saga in")
    submit.add_argument("file", help="JSON: a list of steps, or the whole body; - is standard input")
    submit.add_argument("--saga-key", dest="key_of_work", help="idempotency key")
    _with_watch(submit)
    _with_id(_command(group, "show", sagas.show, "show a saga, step by step"))
    _with_id(_command(group, "watch", sagas.watch, "follow a saga to its end"))


def _dependencies(commands: Commands) -> None:
    _command(commands, "dependencies", dependencies.list_all, "list dependencies and their policies")
    _command(commands, "health", dependencies.health, "tell whether the app can take operations over")
    group = _group(commands, "policy", "retry policies")
    preview = _command(group, "preview", dependencies.preview, "show every wait, as a table and a plot")
    preview.add_argument("--dependency")
    preview.add_argument(
        "--retry", action="append", default=[], metavar="NAME=VALUE", help="as in a retry table"
    )
    preview.add_argument("--deadline-seconds", type=float)
