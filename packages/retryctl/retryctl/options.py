"""The options of all commands, each under the API's name for its value; JSON from options and files."""

import json
import re
import sys
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, override

from retryctl.errors import UsageError


@dataclass(frozen=True, slots=True)
class Option:
    """An option, or an argument where its name has no dashes; `more` is for `ArgumentParser.add_argument`."""

    name: str
    more: Mapping[str, Any]

    @property
    def dest(self) -> str:
        """The API's name for its value."""
        return str(self.more.get("dest") or self.name.removeprefix("--").replace("-", "_"))


type OneOf = tuple[Option, ...]
"""Options of which one can be given."""


def read_document(name: str) -> Any:
    """Return the JSON document in a file; `-` is standard input.

    Raises:
        UsageError: The file cannot be read, or is not JSON.
    """
    try:
        return _json(sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ArgumentTypeError) as error:
        raise UsageError(f"{name}: {error}") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"is not JSON: {error}") from None


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _steps(text: str) -> list[Any]:
    if not isinstance(steps := _json(text), list):
        raise ArgumentTypeError("must be a list of steps")
    return steps


def _pair(separator: str, read: Callable[[str], Any] = str) -> Callable[[str], tuple[str, Any]]:
    def parse(text: str) -> tuple[str, Any]:
        name, found, value = text.partition(separator)
        if not found or not name.strip():
            raise ArgumentTypeError(f"must look like NAME{separator}VALUE, not {text!r}")
        return name.strip(), read(value.strip())

    return parse


def _replacement(text: str) -> dict[str, Any]:
    pointer, value = _pair("=", _json_or_text)(text)
    return {"op": "replace", "path": pointer, "value": value}


def _look(text: str) -> tuple[str, str]:
    step, _, look = text.rpartition("=")
    if not step or look not in {"undone", "stands"}:
        raise ArgumentTypeError("must be STEP=undone or STEP=stands")
    return step, look


def plain_number[N: (int, float)](type_: type[N], text: str) -> N:
    """Read a number in digits from 0 to 9; Python takes more, such as `1_000`, `nan` and other scripts."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return type_(text)


_NUMBER: Final = re.compile(r"-?[0-9]*\.?[0-9]+")


def _shares(text: str) -> list[float]:
    try:
        return [plain_number(float, share) for share in text.split(",")]
    except ValueError:
        raise ArgumentTypeError("must be shares, such as 0.01,0.1,1") from None


class _Gathered(Action):
    """Gathers pairs of a name and a value into one mapping."""

    @override
    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, *_: Any) -> None:
        name, value = values
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), name: value})


_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("SECONDS", "PER_SECOND", "SHARE"), float),
    "N": int,
    "JSON": _json,
    "SHARES": _shares,
    "POINTER=JSON": _replacement,
}
"""What a word for a value means, where it is more than text."""


def _option(name: str, words: str, metavar: str | None = None, **more: Any) -> Option:
    if metavar is not None:
        more = {"metavar": metavar, "type": _TYPES.get(metavar, str), **more}
    return Option(name, {"help": words, **more})


def _choice(name: str, words: str, more: str = "") -> Option:
    metavar = "WORD" if name.startswith("-") else name.upper()
    return _option(name, words.replace(" ", ", ") + more, metavar, choices=words.split())


def _flag(name: str, words: str, *, value: Any = True, **more: Any) -> Option:
    return _option(name, words, action="store_const", const=value, **more)


def _pairs(name: str, words: str, metavar: str, read: Callable[[str], Any], **more: Any) -> Option:
    return _option(name, f"{words}; may be repeated", metavar, type=read, action=_Gathered, **more)


def _limit(default: int) -> OneOf:
    most = _option("--limit", f"most items (default: {default})", "N")
    return most, _flag("--all", "list every item", value=None, dest="limit")


_STATUSES: Final = (
    "pending scheduled paused running waiting_retry waiting_throttle waiting_circuit waiting_order "
    "succeeded dead_lettered cancelled"
)
_KINDS: Final = "action bulk circuit deployment settings"
_TYPES_FOUND: Final = "operation dead_letter event batch saga bulk_action activity"
_INSTANT: Final = "such as 2026-11-22T09:00:00Z"
_KEY: Final = "idempotency key: with the same key it is started once; made and shown when absent"
_STEP: Final = "run this step again, those after it, and those not in effect; default: those not in effect"
_DEBOUNCE: Final = "begin after this long, even if later ones come; ten times --debounce-seconds unless given"

OPTIONS: Final[Mapping[str, Option | OneOf | str]] = {
    "id": _option("id", "its id, as lists show it"),
    "list": "limit ids",
    "limit": _limit(50),
    "limit20": _limit(20),
    "limit1000": _limit(1000),
    "ids": _flag("--ids", "write only the ids, one per line", dest="only_ids"),
    "watch": _flag("--watch", "follow it until it ends"),
    "note": _option("--note", "why, for whoever looks later; kept with it"),
    # what lists are narrowed by
    "exact": "key correlation_id",
    "key": _option("--key", "the whole key"),
    "correlation_id": _option("--correlation-id", "the whole correlation id", "ID"),
    "origin": "handler source turn dependency times",
    "handler": _option("--handler", "name of the handler"),
    "source": _option("--source", "where it came from, such as http, queue, batch"),
    "turn": "order_key limit_key debounce_key priority",
    "order_key": _option("--order-key", "the whole order key", "KEY"),
    "limit_key": _option("--limit-key", "the whole limit key", "KEY"),
    "debounce_key": _option("--debounce-key", "the whole debounce key", "KEY"),
    "priority": _choice("--priority", "high normal low"),
    "dependency": _option("--dependency", "name in dependencies.toml"),
    "times": "created_after created_before",
    "created_after": _option("--created-after", _INSTANT, "INSTANT"),
    "created_before": _option("--created-before", _INSTANT, "INSTANT"),
    "letters": "letter_reason category group app_version turn dependency times",
    "letter_reason": _option("--reason", "such as RetriesExhausted; of a pause or a resume, why"),
    "category": _option("--category", "of the failure, such as transient"),
    "app_version": _option("--app-version", "the app's version that gave it up", "VERSION"),
    "group": _option("--group", "root cause, from `dead-letters groups`"),
    "q": _option("--q", "words in a key, the correlation id, an id, the reason or the error", "WORDS"),
    "words": _option("words", "each must occur; a whole key or id is looked up at once", nargs="*"),
    "type": _choice("--type", _TYPES_FOUND),
    "any_status": _option("--status", "such as waiting_retry, open, sent"),
    "operation_status": _choice("--status", _STATUSES),
    "item_status": _choice("--status", "pending running succeeded dead_lettered cancelled"),
    "letter_status": _choice("--status", "open replayed archived"),
    "cause_status": _choice("--status", "new acknowledged resolved"),
    "event_status": _choice("--status", "pending sent failed"),
    "blocked": _flag("--blocked", "only those that a dead letter blocks", value="true"),
    "who": _option("--who", "name of a person or a key"),
    "kind": _choice("--kind", _KINDS),
    "after": _option("--after", _INSTANT, "INSTANT"),
    "before": _option("--before", _INSTANT, "INSTANT"),
    # an operation
    "operation": _option("file", "JSON, in place of the options; - is standard input", nargs="?"),
    "request": "dependency method path query headers body",
    "method": _option("--method", "default: POST"),
    "path": _option("--path", "below the dependency's base URL"),
    "query": _pairs("--query", "of the URL", "NAME=VALUE", _pair("=")),
    "headers": _pairs("--header", "of the request", "NAME:VALUE", _pair(":"), dest="headers"),
    "body": _option("--body", "of the request", "JSON", dest="json"),
    "run": _option("--handler", "run this handler of the app, in place of --dependency"),
    "input": _option("--input", "of the handler", "JSON"),
    "own_key": _option("--key", _KEY),
    "own_correlation_id": _option("--correlation-id", "your own id, to find the operation by", "ID"),
    "retry": _pairs(
        "--retry", "of the policy, such as max_attempts=3", "NAME=VALUE", _pair("=", _json_or_text)
    ),
    "deadline": _option("--deadline-seconds", "for the whole operation, waits included", "SECONDS"),
    "begin": (
        _option("--start-at", f"begin at this instant, {_INSTANT}", "INSTANT"),
        _option("--delay-seconds", "begin after this long", "SECONDS"),
        _option(
            "--debounce-seconds", "wait this long for a later one with the same --debounce-key", "SECONDS"
        ),
    ),
    "order": "own_order_key on_failure priority own_limit_key own_debounce_key debounce_max",
    "own_order_key": _option("--order-key", "run one after the other with those of the same KEY", "KEY"),
    "on_failure": _choice("--order-on-failure", "block skip"),
    "own_limit_key": _option("--limit-key", "whose share of the dependency's limits it uses", "KEY"),
    "own_debounce_key": _option("--debounce-key", "a later one with it replaces this while it waits", "KEY"),
    "debounce_max": _option("--debounce-max-seconds", _DEBOUNCE, "SECONDS"),
    "wait": _option("--wait", "wait for the end, at most 30 s", "N"),
    "reason": _option("--reason", "why, for whoever looks at it"),
    "stuck": _flag("--stuck", "list what should have gone on and has not"),
    "pause": "for_seconds stop_deadline",
    "for_seconds": _option("--for-seconds", "default: until it is changed again", "SECONDS"),
    "change": "retry deadline at_once",
    "at_once": _flag("--at-once", "also one that is not paused: pause, change and resume it"),
    "stop_deadline": _flag("--stop-deadline", "add the time of waiting to deadlines", dest="stops_deadline"),
    "deadlines_go_on": _flag(
        "--deadlines-go-on", "add no time of waiting to deadlines", value=False, dest="stops_deadline"
    ),
    "waves": _option("--waves", "how many go from each wave on (default: 0.01,0.1,1)", "SHARES"),
    "wave_seconds": _option("--wave-seconds", "to watch circuits after each (default: 60)", "SECONDS"),
    # dead letters, causes, many at once
    "edit": "set patch from_step downstream_key note",
    "set": _option(
        "--set",
        "put a value at a JSON pointer, such as /request/json/amount=6; repeatable",
        "POINTER=JSON",
        action="append",
        dest="patch",
    ),
    "patch": _option("--patch", "(RFC 6902) as a list of steps", "JSON", type=_steps, action="extend"),
    "from_step": _option("--from-step", "run this remembered step and those after it again", "STEP"),
    "downstream_key": _choice("--downstream-key", "same new", "; default: new when the request changed"),
    "new_request": _option("--request", "fields of the request to replace", "JSON"),
    "new_input": _option("--input", "in place of a handler's input", "JSON"),
    "message": _option("--message", "in place of a message that became no operation", "TEXT"),
    "text": _option("text", "of the note"),
    "pace": "edit rate dry_run watch",
    "proof": (
        _flag("--no-probe", "send all at the rate, in place of 1, 5 and the rest", value=False, dest="probe"),
        _option("--stop-at-failed", "stop where more of the last 20 fail again (default: 0.5)", "SHARE"),
    ),
    "rate": _option("--rate", "how many per second (default: 5)", "PER_SECOND", dest="rate_per_second"),
    "dry_run": _flag("--dry-run", "only count what matches, and preview a change"),
    "action": _choice("action", "replay lookup archive restore cancel retry-now pause resume"),
    "many": _option("ids", "in place of filters, 200 at most", "id", nargs="*"),
    "all": _flag("--all", "all that are open, or have not ended"),
    "batch": _option("--batch", "the dead letters of this batch", "ID", dest="batch_id"),
    # batches, sagas, lanes, circuits, alerts, the app
    "file": _option("file", "JSON: a list, or the whole body; - is standard input"),
    "concurrency": _option("--max-concurrency", "operations under way at once", "N"),
    "tolerated": _option("--tolerated-failures", "how many items may fail without failing the batch", "N"),
    "saga_step": _option("--from-step", _STEP, "STEP"),
    "confirm": _pairs("--confirm", "what you found at the dependency", "STEP=WHAT", _look, dest="confirmed"),
    "lane": _option("order_key", "of the operations"),
    "circuit": _option("dependency", "name in dependencies.toml"),
    "of_key": _option("--limit-key", "the circuit of this limit key", "KEY"),
    "why": _option("--reason", "why, for whoever looks later", required=True),
    "any_dependency": _option("dependency", "default: every one", nargs="?"),
    "minutes": _option("--minutes", "how far back", "N"),
    "every": _option("--every", "between two looks (default: 2)", "SECONDS"),
    "app_url": _option("url", "of the app; in place of --url", "URL", nargs="?"),
    "master_key": _option("--master-key", "of the Functions host, which shows its version by /admin", "KEY"),
    "part_seconds": _option("--part-seconds", "how long to wait for each part (default: 60)", "SECONDS"),
    "app_folder": _option("--app", "folder of the function app (default: this one)", "DIR", dest="app"),
    "histories_or_save": (
        _option("--histories", "replay those that were saved here, without a running app", "DIR"),
        _option("--save", "keep what is downloaded here", "DIR"),
    ),
    "completed": _flag("--completed", "also what has completed", value="true"),
    "shell": _choice("shell", "bash zsh fish"),
    "allow_changes": _flag("--allow-changes", "also let it replay, retry now and pause"),
}
"""Options, and names of several, by the words with which a table of commands says what one takes."""

EVERYWHERE: Final = (
    _option("--url", "base URL of the app; else DURABLE_RETRY_URL, else http://localhost:7071"),
    _option("--function-key", "the app's, if it needs one; else DURABLE_RETRY_KEY"),
    _flag("--json", "write the API's JSON", dest="as_json"),
    _flag("--utc", "show times in UTC; else in the zone of this machine"),
)
"""They work before and behind every command."""


def options_of(names: str) -> Iterator[Option | OneOf]:
    """Yield the options with these names."""
    for name in names.split():
        match OPTIONS[name]:
            case str(several):
                yield from options_of(several)
            case option:
                yield option
