"""The commands and their options."""

import sys
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Sequence
from typing import Any, Final

from retryctl import (
    __version__,
    activity,
    bulk,
    dead_letters,
    dependencies,
    doctor,
    operations,
    outbox,
    search,
    workflows,
)
from retryctl.api import KEY, URL, Api
from retryctl.screen import Screen

type Command = Callable[[Api, Namespace, Screen], int]
type Commands = _SubParsersAction[ArgumentParser]

SHELLS: Final = ("bash", "zsh", "fish")

_DEFAULT_LIMIT: Final = 50
_INSTANT: Final = "such as 2026-11-22T09:00:00Z"

_OPERATION_STATUSES: Final = (
    "pending",
    "running",
    "waiting_retry",
    "waiting_circuit",
    "succeeded",
    "dead_lettered",
    "cancelled",
)
_DEAD_LETTER_STATUSES: Final = ("open", "replayed", "archived")
_EVENT_STATES: Final = ("pending", "sent", "failed")
_FILE: Final = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "fish": "(__fish_complete_path (commandline -ct))",
}
"""How each shell completes the name of a file: `shtab.FILE`, without the import."""

_EPILOG: Final = """exit codes: 0 done; 1 the operation failed, or the API refused; 2 the command is wrong;
3 the API does not answer"""

_EVERYWHERE: Final = "Besides: --url, --function-key and --json, see `retryctl --help`."


def build_parser() -> ArgumentParser:
    """Return the parser; its result has the command as `run`."""
    parser = ArgumentParser(
        prog="retryctl", description="Work with Durable Retry over its HTTP API.", epilog=_EPILOG
    )
    parser.add_argument("--version", action="version", version=f"retryctl {__version__}")
    parser.add_argument("--url", help=f"base URL of the app; else {URL.name}, else {URL.default}")
    parser.add_argument("--function-key", help=f"the app's function key, if it needs one; else {KEY.name}")
    parser.add_argument("--json", action="store_true", help="write the API's JSON")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_operations(commands)
    _add_circuits(commands)
    _add_dead_letters(commands)
    _add_replays(commands)
    _add_bulk(commands)
    _add_outbox(commands)
    _add_activity(commands)
    _add_workflows(commands)
    _add_dependencies(commands)
    words = "print a script that completes commands and options with the Tab key"
    shell = commands.add_parser("completion", help=words, description=words)
    shell.add_argument("shell", choices=SHELLS, action=_Completion)
    return parser


class _Completion(Action):
    """Prints the script and ends the process, as `--version` prints the version."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,  # noqa: ARG002 - argparse's own
        values: Any,
        option_string: str | None = None,  # noqa: ARG002 - argparse's own
    ) -> None:
        import shtab  # noqa: PLC0415 - no other command needs it

        sys.stdout.write(shtab.complete(build_parser(), values))
        parser.exit()


def _command(commands: Commands, name: str, run: Command, words: str) -> ArgumentParser:
    command = commands.add_parser(name, help=words, description=words, epilog=_EVERYWHERE)
    # The global options work behind the command too. A default here would overwrite the value before it.
    command.add_argument("--url", default=SUPPRESS, help=SUPPRESS)
    command.add_argument("--function-key", default=SUPPRESS, help=SUPPRESS)
    command.add_argument("--json", action="store_true", default=SUPPRESS, help=SUPPRESS)
    command.set_defaults(run=run, ids=False)
    return command


def _group(commands: Commands, name: str, words: str) -> Commands:
    group = commands.add_parser(name, help=words, description=words)
    return group.add_subparsers(metavar="COMMAND", required=True)


def _with_id(command: ArgumentParser, of: str) -> ArgumentParser:
    command.add_argument("id", help=f"of the {of}")
    return command


def _with_file(command: ArgumentParser, words: str, **more: Any) -> None:
    vars(command.add_argument("file", help=f"{words}; - is standard input", **more))["complete"] = _FILE


def _with_choice(command: ArgumentParser, option: str, words: Sequence[str]) -> None:
    command.add_argument(
        option, choices=words, metavar=option.removeprefix("--").upper(), help=", ".join(words)
    )


def _with_limit(command: ArgumentParser) -> None:
    limit = command.add_mutually_exclusive_group()
    limit.add_argument("--limit", type=int, default=_DEFAULT_LIMIT, help="most items (default: 50)")
    limit.add_argument("--all", dest="limit", action="store_const", const=None, help="list every item")
    command.add_argument("--ids", action="store_true", help="write only the ids, one per line")


def _with_key(command: ArgumentParser, of: str) -> None:
    words = f"idempotency key: with the same key the {of} is started once; made and shown when absent"
    command.add_argument("--key", help=words)


def _with_watch(command: ArgumentParser) -> None:
    command.add_argument("--watch", action="store_true", help="follow it until it ends")


def _with_retry(command: ArgumentParser) -> None:
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


def _with_filters(command: ArgumentParser) -> None:
    command.add_argument("--reason", help="such as RetriesExhausted")
    command.add_argument("--category", help="of the failure, such as transient")
    command.add_argument("--group", help="root cause, from `dead-letters groups`")
    _with_dependency_and_times(command)


def _with_dependency_and_times(command: ArgumentParser) -> None:
    command.add_argument("--dependency", help="name in dependencies.toml")
    command.add_argument("--created-after", metavar="INSTANT", help=_INSTANT)
    command.add_argument("--created-before", metavar="INSTANT", help=_INSTANT)


def _with_exact_ids(command: ArgumentParser) -> None:
    command.add_argument("--key", help="the whole key")
    command.add_argument("--correlation-id", metavar="ID", help="the whole correlation id")


def _with_query(command: ArgumentParser) -> None:
    command.add_argument(
        "--q", metavar="WORDS", help="words in the key, the correlation id, an id or the error"
    )


def _add_find(commands: Commands) -> None:
    words = "find anything by key, correlation id, id, or words of the error"
    found = _command(commands, "find", search.find, words)
    found.add_argument("words", nargs="*", help="each must occur; a whole key or id is looked up at once")
    _with_choice(found, "--type", ("operation", "dead_letter", "event", "batch", "saga", "replay"))
    found.add_argument("--status", help="in the words of the type, such as waiting_retry, open, sent")
    _with_origin(found)
    _with_exact_ids(found)
    limit = found.add_mutually_exclusive_group()
    limit.add_argument("--limit", type=int, default=20, help="most items (default: 20)")
    limit.add_argument("--all", dest="limit", action="store_const", const=None, help="look at everything")


def _with_origin(command: ArgumentParser) -> None:
    command.add_argument("--handler", help="name of the handler")
    command.add_argument("--source", help="where it came from, such as http, queue, batch")
    _with_dependency_and_times(command)


def _add_operations(commands: Commands) -> None:
    _add_find(commands)
    submit = _command(commands, "submit", operations.submit, "submit an operation")
    _with_file(submit, "the operation as JSON, in place of the options", nargs="?")
    submit.add_argument("--dependency", help="which dependency to call")
    submit.add_argument("--method", default="POST", help="default: POST")
    submit.add_argument("--path", default="", help="below the dependency's base URL")
    submit.add_argument(
        "--query", action="append", default=[], metavar="NAME=VALUE", help="of the URL; may be repeated"
    )
    submit.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="of the request; may be repeated"
    )
    submit.add_argument("--body", metavar="JSON", help="of the request")
    submit.add_argument("--handler", help="run this handler of the app, in place of --dependency")
    submit.add_argument("--input", default="null", metavar="JSON", help="of the handler")
    _with_key(submit, "operation")
    submit.add_argument("--correlation-id", help="your own id, to find the operation by")
    _with_retry(submit)
    submit.add_argument("--wait", type=int, metavar="SECONDS", help="wait for the end, at most 30 s")
    _with_watch(submit)
    _with_id(_command(commands, "get", operations.get, "show an operation"), "operation")
    _with_id(_command(commands, "watch", operations.watch, "follow an operation until it ends"), "operation")
    listed = _command(commands, "list", operations.list_operations, "list operations, newest first")
    _with_choice(listed, "--status", _OPERATION_STATUSES)
    _with_origin(listed)
    _with_exact_ids(listed)
    _with_query(listed)
    _with_limit(listed)
    _with_id(_command(commands, "cancel", operations.cancel, "cancel an operation"), "operation")
    words = "let a waiting operation make its next attempt at once"
    _with_id(_command(commands, "retry-now", operations.retry_now, words), "operation")


def _add_circuits(commands: Commands) -> None:
    group = _group(commands, "circuits", "show and switch the circuits of dependencies")
    _command(group, "list", dependencies.list_circuits, "list circuits")
    _command(group, "show", dependencies.show_circuit, "show a circuit").add_argument("dependency")
    words = "list the latest openings of a circuit, with what it saw then"
    _command(group, "openings", dependencies.list_openings, words).add_argument("dependency")
    for action, words in (
        ("open", "let no attempt through"),
        ("close", "let attempts through and resume waiting operations"),
        ("disable", "let every attempt through, whatever fails"),
        ("reset", "close it and forget its counts"),
    ):
        command = _command(group, action, dependencies.change_circuit, words)
        command.add_argument("dependency")
        command.add_argument("--reason", required=True, help="why; kept in the circuit's history")
        command.set_defaults(action=action, for_seconds=None)
        if action in {"open", "disable"}:
            command.add_argument(
                "--for-seconds", type=float, metavar="SECONDS", help="default: until the next manual change"
            )


def _add_dead_letters(commands: Commands) -> None:
    words = "operations and messages that will not succeed without a person"
    group = _group(commands, "dead-letters", words)
    listed = _command(group, "list", dead_letters.list_dead_letters, "list dead letters, newest first")
    _with_choice(listed, "--status", _DEAD_LETTER_STATUSES)
    _with_filters(listed)
    _with_exact_ids(listed)
    _with_query(listed)
    _with_limit(listed)
    _with_limit(_command(group, "groups", dead_letters.list_groups, "list root causes of open dead letters"))
    _command(group, "summary", dead_letters.summary, "count open dead letters")
    _with_id(_command(group, "show", dead_letters.show, "show a dead letter"), "dead letter")
    words = "start its operation again, as it was or edited"
    replay = _with_id(_command(group, "replay", dead_letters.replay, words), "dead letter")
    replay.add_argument("--request", metavar="JSON", help="fields of the request to replace")
    replay.add_argument("--input", metavar="JSON", help="in place of a handler's input")
    replay.add_argument("--message", metavar="TEXT", help="in place of a message that became no operation")
    replay.add_argument(
        "--downstream-key",
        choices=("same", "new"),
        help="key that the dependency deduplicates on; default: new when the request or input changed",
    )
    replay.add_argument("--note", help="kept with the dead letter")
    words = "put away a dead letter that will not be replayed"
    _with_id(_command(group, "archive", dead_letters.archive, words), "dead letter")
    words = "open an archived dead letter again"
    _with_id(_command(group, "restore", dead_letters.restore, words), "dead letter")
    note = _with_id(_command(group, "note", dead_letters.note, "add a note"), "dead letter")
    note.add_argument("text")


def _add_replays(commands: Commands) -> None:
    group = _group(commands, "replays", "bulk replays: many dead letters at a steady rate")
    words = "replay every open dead letter that matches the filters"
    start = _command(group, "start", dead_letters.start_replay, words)
    _with_filters(start)
    start.add_argument("--rate", type=float, metavar="PER_SECOND", help="replays per second (default: 5)")
    start.add_argument("--note", help="kept with each dead letter")
    start.add_argument("--dry-run", action="store_true", help="only count what matches")
    _with_watch(start)
    _with_limit(_command(group, "list", dead_letters.list_replays, "list bulk replays, newest first"))
    words = "show the progress of a bulk replay"
    _with_id(_command(group, "show", dead_letters.show_replay, words), "bulk replay")
    words = "list what became of each dead letter of a bulk replay, the latest first"
    _with_limit(_with_id(_command(group, "items", dead_letters.replay_items, words), "bulk replay"))
    words = "follow a bulk replay until it ends"
    _with_id(_command(group, "watch", dead_letters.watch_replay, words), "bulk replay")
    words = "cancel a bulk replay; what was replayed stays replayed"
    _with_id(_command(group, "cancel", dead_letters.cancel_replay, words), "bulk replay")


def _add_bulk(commands: Commands) -> None:
    words = "act on many: replay or archive dead letters, cancel or retry now operations"
    group = _group(commands, "bulk", words)
    words = "act on every one that matches the filters, or on those that are named"
    start = _command(group, "start", bulk.start, words)
    start.add_argument("action", choices=bulk.ACTIONS)
    start.add_argument("ids", nargs="*", metavar="id", help="in place of filters, 200 at most")
    start.add_argument("--all", action="store_true", help="all that are open, or have not ended")
    start.add_argument("--status", help="of operations that have not ended, such as waiting_retry")
    _with_filters(start)
    start.add_argument("--rate", type=float, metavar="PER_SECOND", help="how many per second (default: 5)")
    start.add_argument("--note", help="kept with each dead letter")
    start.add_argument("--dry-run", action="store_true", help="only count what matches")
    _with_watch(start)
    _with_limit(_command(group, "list", bulk.list_actions, "list bulk actions, newest first"))
    _with_id(_command(group, "show", bulk.show, "show the progress of a bulk action"), "bulk action")
    words = "list what became of each item of a bulk action, the latest first"
    _with_limit(_with_id(_command(group, "items", bulk.items, words), "bulk action"))
    _with_id(_command(group, "watch", bulk.watch, "follow a bulk action until it ends"), "bulk action")
    words = "cancel a bulk action; what was done stays done"
    _with_id(_command(group, "cancel", bulk.cancel, words), "bulk action")


def _add_activity(commands: Commands) -> None:
    words = "list what people did and what happened: circuits, alerts, bulk actions, deployments, settings"
    listed = _command(commands, "activity", activity.list_activity, words)
    listed.add_argument("--who", help="name of a person or a key")
    _with_choice(listed, "--kind", activity.KINDS)
    listed.add_argument("--dependency", help="name in dependencies.toml")
    listed.add_argument("--q", metavar="WORDS", help="words in who, what, the reason or the target's id")
    listed.add_argument("--after", metavar="INSTANT", help=_INSTANT)
    listed.add_argument("--before", metavar="INSTANT", help=_INSTANT)
    limit = listed.add_mutually_exclusive_group()
    limit.add_argument("--limit", type=int, default=_DEFAULT_LIMIT, help="most entries (default: 50)")
    limit.add_argument("--all", dest="limit", action="store_const", const=None, help="look at everything")


def _add_outbox(commands: Commands) -> None:
    group = _group(commands, "outbox", "events that are sent after an operation succeeded")
    listed = _command(group, "list", outbox.list_events, "list the events in one state")
    _with_choice(listed, "--status", _EVENT_STATES)
    _with_limit(listed)
    _with_id(_command(group, "show", outbox.show_event, "show an event and its attempts"), "event")
    words = "send an event again, under the same id"
    _with_id(_command(group, "resend", outbox.resend_event, words), "event")


def _add_workflows(commands: Commands) -> None:
    group = _group(commands, "batch", "many operations at once")
    submit = _command(group, "submit", workflows.submit_batch, "submit a batch")
    _with_file(submit, "JSON: a list of operations, or the whole body")
    submit.add_argument("--max-concurrency", type=int, metavar="N", help="operations under way at once")
    submit.add_argument(
        "--tolerated-failures", type=int, metavar="N", help="so many items may fail without failing the batch"
    )
    _with_key(submit, "batch")
    _with_watch(submit)
    _with_limit(_command(group, "list", workflows.list_batches, "list batches, newest first"))
    _with_id(_command(group, "show", workflows.show_batch, "show a batch, item by item"), "batch")
    _with_id(_command(group, "watch", workflows.watch_batch, "follow a batch until it ends"), "batch")
    group = _group(commands, "saga", "steps that are undone by their compensations when one fails")
    submit = _command(group, "submit", workflows.submit_saga, "submit a saga")
    _with_file(submit, "JSON: a list of steps, or the whole body")
    _with_key(submit, "saga")
    _with_watch(submit)
    _with_limit(_command(group, "list", workflows.list_sagas, "list sagas, newest first"))
    _with_id(_command(group, "show", workflows.show_saga, "show a saga, step by step"), "saga")
    _with_id(_command(group, "watch", workflows.watch_saga, "follow a saga until it ends"), "saga")


def _add_dependencies(commands: Commands) -> None:
    _command(commands, "dependencies", dependencies.list_dependencies, "list dependencies and their policies")
    _command(commands, "health", dependencies.health, "show whether the app can accept operations")
    words = "check a running app part by part, and name the first that fails with what to do"
    doctor_ = _command(commands, "doctor", doctor.doctor, words)
    doctor_.add_argument("app_url", nargs="?", metavar="URL", help="of the app; in place of --url")
    words = "of the Functions host, which shows its version by /admin"
    doctor_.add_argument("--master-key", metavar="KEY", help=words)
    words = "how long to wait for each part (default: 60)"
    doctor_.add_argument("--part-seconds", type=float, default=60.0, metavar="SECONDS", help=words)
    words = "show attempts, failures, retries, durations and openings of the last minutes"
    command = _command(commands, "metrics", dependencies.metrics, words)
    command.add_argument("dependency", nargs="?", help="default: every one")
    command.add_argument("--minutes", type=int, default=60, help="how far back, up to 10080 (default: 60)")
    group = _group(commands, "policy", "see what a retry policy does")
    words = "show every wait, as a table and a plot"
    preview = _command(group, "preview", dependencies.preview_policy, words)
    preview.add_argument("--dependency", help="the policy of this dependency, changed by --retry")
    _with_retry(preview)
