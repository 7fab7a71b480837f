"""The commands and their options."""

import sys
from argparse import Action, ArgumentParser, Namespace
from typing import Any, Final

from retryctl import (
    __version__,
    activity,
    alerts,
    bulk,
    causes,
    dead_letters,
    dependencies,
    doctor,
    lanes,
    operations,
    outbox,
    search,
    top,
    workflows,
)
from retryctl.api import KEY, URL
from retryctl.options import (
    INSTANT,
    Commands,
    GuessingParser,
    add_command,
    add_group,
    with_choice,
    with_dependency_and_times,
    with_edit,
    with_exact_ids,
    with_file,
    with_filters,
    with_id,
    with_key,
    with_limit,
    with_list,
    with_origin,
    with_pause,
    with_query,
    with_retry,
    with_turn,
    with_watch,
)

SHELLS: Final = ("bash", "zsh", "fish")

OPERATION_STATUSES: Final = (
    "pending",
    "scheduled",
    "paused",
    "running",
    "waiting_retry",
    "waiting_circuit",
    "waiting_order",
    "succeeded",
    "dead_lettered",
    "cancelled",
)
_DEAD_LETTER_STATUSES: Final = ("open", "replayed", "archived")
_EVENT_STATES: Final = ("pending", "sent", "failed")
_EPILOG: Final = """exit codes: 0 done; 1 the operation failed, or the API refused; 2 the command is wrong;
3 the API does not answer"""


def build_parser() -> ArgumentParser:
    """Return the parser; its result has the command as `run`."""
    parser = GuessingParser(
        prog="retryctl", description="Work with Durable Retry over its HTTP API.", epilog=_EPILOG
    )
    parser.add_argument("--version", action="version", version=f"retryctl {__version__}")
    parser.add_argument("--url", help=f"base URL of the app; else {URL.name}, else {URL.default}")
    parser.add_argument("--function-key", help=f"the app's function key, if it needs one; else {KEY.name}")
    parser.add_argument("--json", action="store_true", help="write the API's JSON")
    words = "show times in UTC; else in the zone of this machine"
    parser.add_argument("--utc", action="store_true", help=words)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_operations(commands)
    _add_circuits(commands)
    _add_dead_letters(commands)
    _add_replays(commands)
    _add_bulk(commands)
    _add_lanes(commands)
    _add_outbox(commands)
    _add_activity(commands)
    _add_alerts(commands)
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


def _add_find(commands: Commands) -> None:
    words = "find anything by key, correlation id, id, or words of the error"
    found = add_command(commands, "find", search.find, words)
    found.add_argument("words", nargs="*", help="each must occur; a whole key or id is looked up at once")
    with_choice(found, "--type", ("operation", "dead_letter", "event", "batch", "saga", "replay", "activity"))
    found.add_argument("--status", help="in the words of the type, such as waiting_retry, open, sent")
    with_origin(found)
    with_exact_ids(found)
    with_limit(found, 20)


def _add_operations(commands: Commands) -> None:
    _add_find(commands)
    submit = add_command(commands, "submit", operations.submit, "submit an operation")
    with_file(submit, "the operation as JSON, in place of the options", nargs="?")
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
    with_key(submit, "operation")
    submit.add_argument("--correlation-id", help="your own id, to find the operation by")
    with_retry(submit)
    with_turn(submit)
    submit.add_argument("--wait", type=int, metavar="SECONDS", help="wait for the end, at most 30 s")
    with_watch(submit)
    with_id(add_command(commands, "get", operations.get, "show an operation"), "operation")
    with_id(
        add_command(commands, "watch", operations.watch, "follow an operation until it ends"), "operation"
    )
    listed = add_command(commands, "list", operations.list_operations, "list operations, newest first")
    with_choice(listed, "--status", OPERATION_STATUSES)
    with_origin(listed)
    with_exact_ids(listed)
    with_query(listed)
    with_list(listed)
    for action, words in (
        ("cancel", "cancel an operation"),
        ("retry-now", "let a waiting operation make its next attempt at once"),
        ("pause", "let an operation do nothing for a while"),
        ("resume", "let a paused operation go on"),
    ):
        command = with_id(add_command(commands, action, operations.act, words), "operation")
        command.set_defaults(action=action)
        if action == "pause":
            command.add_argument("--reason", help="why, for whoever looks at it")
            with_pause(command)


def _add_circuits(commands: Commands) -> None:
    group = add_group(commands, "circuits", "show and switch the circuits of dependencies")
    add_command(group, "list", dependencies.list_circuits, "list circuits")
    add_command(group, "show", dependencies.show_circuit, "show a circuit").add_argument("dependency")
    for action, words in (
        ("open", "let no attempt through"),
        ("close", "let attempts through and resume waiting operations"),
        ("disable", "let every attempt through, whatever fails"),
        ("reset", "close it and forget its counts"),
    ):
        command = add_command(group, action, dependencies.change_circuit, words)
        command.add_argument("dependency")
        command.add_argument("--reason", required=True, help="why; kept in the circuit's history")
        command.set_defaults(action=action, for_seconds=None, stop_deadline=False)
        if action in {"open", "disable"}:
            command.add_argument(
                "--for-seconds", type=float, metavar="SECONDS", help="default: until the next manual change"
            )
        if action == "open":
            command.add_argument(
                "--stop-deadline",
                action="store_true",
                help="add the time of waiting to deadlines",
            )


def _add_dead_letters(commands: Commands) -> None:
    words = "operations and messages that will not succeed without a person"
    group = add_group(commands, "dead-letters", words)
    listed = add_command(group, "list", dead_letters.list_dead_letters, "list dead letters, newest first")
    with_choice(listed, "--status", _DEAD_LETTER_STATUSES)
    with_filters(listed)
    with_exact_ids(listed)
    with_query(listed)
    with_list(listed)
    groups = add_command(group, "groups", causes.list_groups, "list root causes of open dead letters")
    with_choice(groups, "--status", causes.STATUSES)
    with_list(groups)
    add_command(group, "summary", dead_letters.summary, "count open dead letters")
    with_id(add_command(group, "show", dead_letters.show, "show a dead letter"), "dead letter")
    _add_causes(group)
    words = "start its operation again, as it was or edited"
    replay = with_id(add_command(group, "replay", dead_letters.replay, words), "dead letter")
    replay.add_argument("--request", metavar="JSON", help="fields of the request to replace")
    replay.add_argument("--input", metavar="JSON", help="in place of a handler's input")
    replay.add_argument("--message", metavar="TEXT", help="in place of a message that became no operation")
    with_edit(replay)
    replay.add_argument("--note", help="kept with the dead letter")
    words = "put away a dead letter that will not be replayed"
    with_id(add_command(group, "archive", dead_letters.archive, words), "dead letter")
    words = "open an archived dead letter again"
    with_id(add_command(group, "restore", dead_letters.restore, words), "dead letter")
    words = "add a note to a dead letter or a root cause"
    note = with_id(add_command(group, "note", dead_letters.note, words), "dead letter, or of the cause")
    note.add_argument("text")


def _add_causes(group: Commands) -> None:
    with_id(add_command(group, "cause", causes.show, "show a root cause and its latest dead letter"), "cause")
    for name, words in (
        ("acknowledge", "say that you look into a root cause"),
        ("assign", "say who looks into a root cause"),
        ("resolve", "say that a root cause is mended; one that fails later says that it came back"),
    ):
        command = with_id(add_command(group, name, causes.change, words), "cause")
        command.set_defaults(action=name)
        if name == "assign":
            command.add_argument("to", nargs="?", help="name of a person; nobody when left out")
        command.add_argument("--note", help="kept with the cause")


def _with_pace(start: ArgumentParser) -> None:
    with_edit(start)
    start.add_argument("--rate", type=float, metavar="PER_SECOND", help="how many per second (default: 5)")
    start.add_argument("--note", help="kept with each dead letter")
    start.add_argument("--dry-run", action="store_true", help="only count what matches, and preview a change")


def _add_replays(commands: Commands) -> None:
    group = add_group(commands, "replays", "bulk replays: many dead letters at a steady rate")
    words = "replay every open dead letter that matches the filters"
    start = add_command(group, "start", dead_letters.start_replay, words)
    with_filters(start)
    _with_pace(start)
    with_watch(start)
    _add_started(group, bulk.REPLAYS, "bulk replay", "dead letter")


def _add_bulk(commands: Commands) -> None:
    words = "act on many: replay or archive dead letters; cancel, retry now, pause or resume operations"
    group = add_group(commands, "bulk", words)
    words = "act on every one that matches the filters, or on those that are named"
    start = add_command(group, "start", bulk.start, words)
    start.add_argument("action", choices=bulk.ACTIONS)
    start.add_argument("ids", nargs="*", metavar="id", help="in place of filters, 200 at most")
    start.add_argument("--all", action="store_true", help="all that are open, or have not ended")
    start.add_argument("--batch", metavar="ID", help="the dead letters of this batch")
    start.add_argument("--status", help="of operations that have not ended, such as waiting_retry")
    with_filters(start, "of dead letters, such as RetriesExhausted; of a pause, why")
    with_pause(start)
    _with_pace(start)
    with_watch(start)
    _add_started(group, bulk.STARTED, "bulk action", "item")


def _add_started(group: Commands, run: bulk.BulkCommands, what: str, item: str) -> None:
    with_list(add_command(group, "list", run.list, f"list {what}s, newest first"))
    with_id(add_command(group, "show", run.show, f"show the progress of a {what}"), what)
    words = f"list what became of each {item} of a {what}, the latest first"
    with_list(with_id(add_command(group, "items", run.items, words), what))
    with_id(add_command(group, "watch", run.watch, f"follow a {what} until it ends"), what)
    words = f"cancel a {what}; what was {run.done} stays {run.done}"
    with_id(add_command(group, "cancel", run.cancel, words), what)


def _add_activity(commands: Commands) -> None:
    words = "list what people did and what happened: circuits, alerts, bulk actions, deployments, settings"
    listed = add_command(commands, "activity", activity.list_activity, words)
    listed.add_argument("--who", help="name of a person or a key")
    with_choice(listed, "--kind", activity.KINDS)
    listed.add_argument("--dependency", help="name in dependencies.toml")
    listed.add_argument("--q", metavar="WORDS", help="words in who, what, the reason or the target's id")
    listed.add_argument("--after", metavar="INSTANT", help=INSTANT)
    listed.add_argument("--before", metavar="INSTANT", help=INSTANT)
    with_limit(listed)


def _add_alerts(commands: Commands) -> None:
    group = add_group(commands, "alerts", "conditions that exceed their thresholds, and who is told")
    add_command(group, "show", alerts.show, "show what is raised, silences and receivers")
    silence = add_command(group, "silence", alerts.silence, "keep messages about a condition back")
    silence.add_argument("condition", help="such as dead_letters or circuit_open_seconds:payments; * is all")
    end = silence.add_mutually_exclusive_group(required=True)
    end.add_argument("--for-minutes", type=float, metavar="MINUTES", help="how long, up to a week")
    end.add_argument("--until", metavar="INSTANT", help=INSTANT)
    silence.add_argument("--receiver", help="the only one, by its name in `alerts show`; default: all")
    silence.add_argument("--reason", required=True, help="why, for whoever looks later")
    with_id(add_command(group, "end-silence", alerts.end_silence, "end a silence early"), "silence")
    add_command(group, "test", alerts.test, "send a message to every receiver that says that it is a test")


def _add_lanes(commands: Commands) -> None:
    group = add_group(commands, "lanes", "operations of one order key, which run one after the other")
    listed = add_command(group, "list", lanes.list_lanes, "list where somebody waits or a dead letter blocks")
    listed.add_argument("--blocked", action="store_true", help="only those that a dead letter blocks")
    with_list(listed)
    shown = add_command(group, "show", lanes.show_lane, "show who is in front of a lane, and who waits")
    shown.add_argument("order_key", help="of the operations")


def _add_outbox(commands: Commands) -> None:
    group = add_group(commands, "outbox", "events that are sent after an operation succeeded")
    listed = add_command(group, "list", outbox.list_events, "list the events in one state")
    with_choice(listed, "--status", _EVENT_STATES)
    with_dependency_and_times(listed)
    listed.add_argument("--key", help="the whole key of the operation")
    with_list(listed)
    with_id(add_command(group, "show", outbox.show_event, "show an event and its attempts"), "event")
    words = "send an event again, under the same id"
    with_id(add_command(group, "resend", outbox.resend_event, words), "event")


def _add_workflows(commands: Commands) -> None:
    group = add_group(commands, "batch", "many operations at once")
    submit = add_command(group, "submit", workflows.submit_batch, "submit a batch")
    with_file(submit, "JSON: a list of operations, or the whole body")
    submit.add_argument("--max-concurrency", type=int, metavar="N", help="operations under way at once")
    submit.add_argument(
        "--tolerated-failures", type=int, metavar="N", help="so many items may fail without failing the batch"
    )
    with_key(submit, "batch")
    with_watch(submit)
    with_list(add_command(group, "list", workflows.list_batches, "list batches, newest first"))
    shown = add_command(group, "show", workflows.show_batch, "show a batch, item by item")
    with_choice(with_id(shown, "batch"), "--status", OPERATION_STATUSES)
    with_id(add_command(group, "watch", workflows.watch_batch, "follow a batch until it ends"), "batch")
    group = add_group(commands, "saga", "steps that are undone by their compensations when one fails")
    submit = add_command(group, "submit", workflows.submit_saga, "submit a saga")
    with_file(submit, "JSON: a list of steps, or the whole body")
    with_key(submit, "saga")
    with_watch(submit)
    with_list(add_command(group, "list", workflows.list_sagas, "list sagas, newest first"))
    with_id(add_command(group, "show", workflows.show_saga, "show a saga, step by step"), "saga")
    with_id(add_command(group, "watch", workflows.watch_saga, "follow a saga until it ends"), "saga")
    restart = add_command(group, "restart", workflows.restart_saga, "run a compensated saga again")
    with_id(restart, "saga")
    words = "run this step, those behind it and those that do not stand; default: those that do not stand"
    restart.add_argument("--from-step", metavar="STEP", help=words)
    restart.add_argument("--note", help="why, for whoever looks later")
    words = "what a look has shown of a step whose compensation is in doubt: undone or stands"
    restart.add_argument("--confirm", action="append", metavar="STEP=WHAT", default=[], help=words)
    with_watch(restart)


def _add_dependencies(commands: Commands) -> None:
    add_command(
        commands, "dependencies", dependencies.list_dependencies, "list dependencies and their policies"
    )
    add_command(commands, "health", dependencies.health, "show whether the app can accept operations")
    words = "check a running app part by part, and name the first that fails with what to do"
    doctor_ = add_command(commands, "doctor", doctor.doctor, words)
    doctor_.add_argument("app_url", nargs="?", metavar="URL", help="of the app; in place of --url")
    words = "of the Functions host, which shows its version by /admin"
    doctor_.add_argument("--master-key", metavar="KEY", help=words)
    words = "how long to wait for each part (default: 60)"
    doctor_.add_argument("--part-seconds", type=float, default=60.0, metavar="SECONDS", help=words)
    words = "show attempts, failures, retries, durations and openings of the last minutes"
    command = add_command(commands, "metrics", dependencies.metrics, words)
    command.add_argument("dependency", nargs="?", help="default: every one")
    command.add_argument("--minutes", type=int, default=60, help="how far back, up to 10080 (default: 60)")
    words = "show dependencies, waits and causes, redrawn on a terminal until Ctrl-C"
    command = add_command(commands, "top", top.top, words)
    command.add_argument("--minutes", type=int, default=15, help="of the counts (default: 15)")
    command.add_argument(
        "--every", type=float, default=2.0, metavar="SECONDS", help="between two looks (default: 2)"
    )
    group = add_group(commands, "policy", "see what a retry policy does")
    words = "show every wait, as a table and a plot"
    preview = add_command(group, "preview", dependencies.preview_policy, words)
    preview.add_argument("--dependency", help="the policy of this dependency, changed by --retry")
    with_retry(preview)
