"""The commands and their options."""

from argparse import SUPPRESS, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable
from typing import Final

from retryctl import __version__, dead_letters, dependencies, operations, outbox, workflows
from retryctl.api import Api
from retryctl.environment import KEY, URL
from retryctl.screen import Screen

type Command = Callable[[Api, Namespace, Screen], int]
type Commands = _SubParsersAction[ArgumentParser]

_DEFAULT_LIMIT: Final = 50

_EPILOG: Final = """exit codes: 0 done; 1 the operation failed, or the API refused; 2 the command is wrong;
3 the API does not answer"""


def build_parser() -> ArgumentParser:
    """Return the parser; its result has the command as `run`."""
    parser = ArgumentParser(
        prog="retryctl", description="Work with Durable Retry over its HTTP API.", epilog=_EPILOG
    )
    parser.add_argument("--version", action="version", version=f"retryctl {__version__}")
    parser.add_argument("--url", help=f"base URL of the app; else {URL.name}, else {URL.default}")
    parser.add_argument("--function-key", help=f"else {KEY.name}")
    parser.add_argument("--json", action="store_true", help="write the API's JSON")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_operations(commands)
    _add_circuits(commands)
    _add_dead_letters(commands)
    _add_replays(commands)
    _add_outbox(commands)
    _add_workflows(commands)
    _add_dependencies(commands)
    return parser


def _command(commands: Commands, name: str, run: Command, words: str) -> ArgumentParser:
    command = commands.add_parser(name, help=words, description=words)
    # The global options work behind the command too. A default here would overwrite the value before it.
    command.add_argument("--url", default=SUPPRESS, help=SUPPRESS)
    command.add_argument("--function-key", default=SUPPRESS, help=SUPPRESS)
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
    limit.add_argument("--limit", type=int, default=_DEFAULT_LIMIT, help="most items (default: 50)")
    command.add_argument("--ids", action="store_true", help="write only the ids, one per line")
    limit.add_argument("--all", dest="limit", action="store_const", const=None, help="list every item")


def _with_key(command: ArgumentParser, words: str) -> None:
    command.add_argument("--key", help=words)


def _with_watch(command: ArgumentParser) -> None:
    command.add_argument("--watch", action="store_true", help="follow it until it ends")


def _with_retry(command: ArgumentParser) -> None:
    command.add_argument(
        "--retry", action="append", default=[], metavar="NAME=VALUE", help="a key of a retry table"
    )
    command.add_argument("--deadline-seconds", type=float)


def _with_filters(command: ArgumentParser) -> None:
    for name in ("reason", "category", "dependency", "group"):
        command.add_argument(f"--{name}")
    command.add_argument("--created-after", metavar="INSTANT")
    command.add_argument("--created-before", metavar="INSTANT")


def _add_operations(commands: Commands) -> None:
    submit = _command(commands, "submit", operations.submit, "submit an operation")
    submit.add_argument("file", nargs="?", help="its JSON body; - is standard input")
    submit.add_argument("--dependency")
    submit.add_argument("--method", default="POST", help="default: POST")
    submit.add_argument("--path", default="", help="below the dependency's base URL")
    submit.add_argument("--query", action="append", default=[], metavar="NAME=VALUE")
    submit.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    submit.add_argument("--body", metavar="JSON", help="of the request")
    submit.add_argument("--handler", help="in place of --dependency")
    submit.add_argument("--input", default="null", metavar="JSON", help="of the handler")
    _with_key(submit, "the operation's idempotency key; generated and printed when absent")
    submit.add_argument("--correlation-id")
    _with_retry(submit)
    submit.add_argument("--wait", type=int, metavar="SECONDS", help="wait for the end, at most 30 s")
    _with_watch(submit)
    _with_id(_command(commands, "get", operations.get, "show an operation"))
    _with_id(_command(commands, "watch", operations.watch, "follow an operation until it ends"))
    listed = _command(commands, "list", operations.list_operations, "list operations")
    listed.add_argument("--status")
    listed.add_argument("--dependency")
    listed.add_argument("--created-after", metavar="INSTANT")
    _with_limit(listed)
    _with_id(_command(commands, "cancel", operations.cancel, "cancel an operation"))
    _with_id(_command(commands, "retry-now", operations.retry_now, "end an operation's present wait"))


def _add_circuits(commands: Commands) -> None:
    group = _group(commands, "circuits", "circuits of dependencies")
    _command(group, "list", dependencies.list_circuits, "list circuits")
    _command(group, "show", dependencies.show_circuit, "show a circuit").add_argument("dependency")
    for action, words in (
        ("open", "let no attempt through"),
        ("close", "let attempts through and resume waiting operations"),
        ("disable", "let every attempt through, whatever fails"),
        ("reset", "close it and forget its counts"),
    ):
        command = _command(group, action, dependencies.change_circuit, words)
        command.add_argument("dependency")
        command.add_argument("--reason", required=True, help="kept in the circuit's history")
        command.set_defaults(action=action, for_seconds=None)
        if action in {"open", "disable"}:
            command.add_argument("--for-seconds", type=float, metavar="SECONDS")


def _add_dead_letters(commands: Commands) -> None:
    group = _group(commands, "dead-letters", "operations and messages that need a person")
    listed = _command(group, "list", dead_letters.list_dead_letters, "list dead letters")
    listed.add_argument("--status", help="open, replayed or archived")
    _with_filters(listed)
    _with_limit(listed)
    _with_limit(_command(group, "groups", dead_letters.list_groups, "list root causes of open dead letters"))
    _command(group, "summary", dead_letters.summary, "count open dead letters")
    _with_id(_command(group, "show", dead_letters.show, "show a dead letter"))
    replay = _with_id(_command(group, "replay", dead_letters.replay, "start one again, under the same key"))
    replay.add_argument("--request", metavar="JSON", help="keys of the request to replace")
    replay.add_argument("--input", metavar="JSON", help="in place of a handler's input")
    replay.add_argument("--note", help="kept with the dead letter")
    _with_id(_command(group, "archive", dead_letters.archive, "archive a dead letter"))
    _with_id(_command(group, "restore", dead_letters.restore, "open an archived dead letter again"))
    _with_id(_command(group, "note", dead_letters.note, "add a note")).add_argument("text")


def _add_replays(commands: Commands) -> None:
    group = _group(commands, "replays", "replays of many dead letters")
    words = "replay every open dead letter that matches the filters"
    start = _command(group, "start", dead_letters.start_replay, words)
    _with_filters(start)
    start.add_argument("--rate", type=float, metavar="PER_SECOND", help="default: 5")
    start.add_argument("--note", help="kept with each dead letter")
    start.add_argument("--dry-run", action="store_true", help="only count")
    _with_watch(start)
    _with_id(_command(group, "show", dead_letters.show_replay, "show the progress of a replay"))
    _with_id(_command(group, "watch", dead_letters.watch_replay, "follow a replay until it ends"))
    _with_id(_command(group, "cancel", dead_letters.cancel_replay, "cancel a replay"))


def _add_outbox(commands: Commands) -> None:
    group = _group(commands, "outbox", "follow-up messages")
    listed = _command(group, "list", outbox.list_events, "list the events in one state")
    listed.add_argument("--state", help="pending (the default), sent or failed")
    _with_limit(listed)
    _with_id(_command(group, "resend", outbox.resend, "send an event again"))


def _add_workflows(commands: Commands) -> None:
    group = _group(commands, "batch", "many operations at once")
    submit = _command(group, "submit", workflows.submit_batch, "submit a batch")
    submit.add_argument("file", help="JSON: a list of operations, or the whole body; - is standard input")
    submit.add_argument("--max-concurrency", type=int)
    submit.add_argument("--tolerated-failures", type=int)
    _with_key(submit, "the batch's idempotency key")
    _with_watch(submit)
    _with_id(_command(group, "show", workflows.show_batch, "show a batch, item by item"))
    _with_id(_command(group, "watch", workflows.watch_batch, "follow a batch until it ends"))
    group = _group(commands, "saga", "steps that are compensated when one fails")
    submit = _command(group, "submit", workflows.submit_saga, "submit a saga")
    submit.add_argument("file", help="JSON: a list of steps, or the whole body; - is standard input")
    _with_key(submit, "the saga's idempotency key")
    _with_watch(submit)
    _with_id(_command(group, "show", workflows.show_saga, "show a saga, step by step"))
    _with_id(_command(group, "watch", workflows.watch_saga, "follow a saga until it ends"))


def _add_dependencies(commands: Commands) -> None:
    _command(commands, "dependencies", dependencies.list_dependencies, "list dependencies and their policies")
    _command(commands, "health", dependencies.health, "show whether the app can accept operations")
    group = _group(commands, "policy", "retry policies")
    words = "show every wait, as a table and a plot"
    preview = _command(group, "preview", dependencies.preview_policy, words)
    preview.add_argument("--dependency")
    _with_retry(preview)
