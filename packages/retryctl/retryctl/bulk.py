"""Commands about many at once: bulk actions on dead letters or operations."""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import RenderableType

from retryctl import errors, watching
from retryctl.api import Api
from retryctl.commands import Ask, Command, Given, Listing, Watch
from retryctl.dead_letters import change_text
from retryctl.errors import UsageError
from retryctl.output import Screen, bar, cell, fill

_FINISHED: Final = frozenset({"completed", "stopped", "cancelled"})
_FILTERS: Final = (
    *("status", "reason", "category", "dependency", "group", "app_version"),
    *("order_key", "limit_key", "debounce_key", "priority", "created_after", "created_before"),
)
_ENDS: Final = ("succeeded", "failed_again", "under_way", "refused")
"""How what was started has ended."""


def _text(document: Any) -> Iterator[RenderableType]:
    """Yield how far it is, why it stopped, and what failed."""
    counts = ", ".join(
        f"{document[name]} {name.replace('_', ' ')}"
        for name in ("matched", "started", *_ENDS[:-1], "skipped", "failed", "remaining")
    )
    yield fill("{action_id}  {action} {status}: {counts}", document | {"counts": counts})
    if document["reason"]:
        yield f"  {cell(document['reason'])}"
    yield from (f"  {failure['id']}: {cell(failure['detail'])}" for failure in document["failures"])


def _live(document: Any) -> str:
    done = document["matched"] - document["remaining"]
    text = f"{bar(done, document['matched'])}  {done} of {document['matched']}  {document['status']}"
    text += f", {document['under_way']} under way" if document["under_way"] else ""
    until = document["waiting_until"]
    return text if until is None else f"{text}, waits for a circuit, looks again in {watching.left(until)}"


def _change(_before: Any, document: Any) -> Iterator[RenderableType]:
    return _text(document) if document["status"] in _FINISHED else iter(())


_WATCH: Final = Watch(
    *("bulk-actions", "action_id", _FINISHED, _live, _change),
    lambda ended: ended["status"] == "completed" and not (ended["failed"] or ended["failed_again"]),
)


def _preview(document: Any) -> Iterator[RenderableType]:
    """Yield what a replay would change in the first ones, or why it would be refused."""
    letters = document.get("preview", ())
    if letters and not any(letter["changes"] or letter["errors"] for letter in letters):
        yield "nothing changes"
        return
    for letter in letters:
        yield f"{letter['id']}  {letter['key'] or ''}".rstrip()
        yield from (f"  {change_text(change)}" for change in letter["changes"])
        yield from (
            f"  refused {each['pointer'] or '/'}: {cell(each['detail'])}" for each in letter["errors"]
        )
        if not (letter["changes"] or letter["errors"]):
            yield "  nothing changes"


def _start(api: Api, given: Given, screen: Screen) -> int:
    """Start a bulk action on what matches the filters, the given ids or a batch; `--dry-run` only counts.

    Raises:
        UsageError: Not exactly one of filters, ids, `--batch` and `--all` is given.
    """
    name = given.pop("action")
    # The reason of a pause is why it is made; elsewhere dead letters are chosen by theirs.
    own = {"reason": given.pop("reason")} if name in {"pause", "resume"} and "reason" in given else {}
    if name != "pause" and not given.keys().isdisjoint(("for_seconds", "stops_deadline")):
        raise UsageError("--for-seconds and --stop-deadline go with a pause only")
    filter_ = {each: given.pop(each) for each in _FILTERS if each in given}
    is_all = given.pop("all", False)
    if sum(map(bool, (filter_, is_all, given.get("ids"), given.get("batch_id")))) != 1:
        raise UsageError("give filters, or ids, or --batch, or --all")
    if filter_ or is_all:
        given["filter"] = filter_
    given |= {"action": name.replace("-", "_"), **own}
    ask = Ask("POST bulk-actions", f"{{action_id}}  {name} of {{matched}}", _WATCH)
    if not given.setdefault("dry_run", False):
        return ask(api, given, screen)
    document = api.ask(ask.route, given)
    least = "" if document["complete"] else "at least "
    count = f"{name} would act on {least}{document['matched']}"
    screen.show(document, lambda shown: [count, *_preview(shown)])
    return errors.OK


_COLUMNS: Final = f"action_id:id action status matched {' '.join(_ENDS)} remaining created_at by note"
_ITEMS: Final = Listing(
    "bulk-actions/{id}/items",
    "id key outcome what:operation status:now failed_again:failed_again_as at detail:why",
    "id",
    {"what": lambda item: item["event_id"] or item["operation_id"]},
)

COMMANDS: Final = (
    Command(
        "bulk start",
        "act on every one that matches the filters, or on those that are named",
        _start,
        "action many all batch any_status letters pause change pace proof",
    ),
    Command(
        "bulk list",
        "list bulk actions, newest first",
        Listing("bulk-actions", _COLUMNS, "action_id"),
        "list",
    ),
    Command("bulk show", "show how far a bulk action is", Ask("GET bulk-actions/{id}", _text), "id"),
    Command("bulk items", "list what became of each item, the latest first", _ITEMS, "id list"),
    Command("bulk watch", "follow a bulk action until it ends", _WATCH, "id"),
    Command(
        "bulk resume",
        "continue one that has stopped: it sends 1, then 5, then the rest",
        Ask("POST bulk-actions/{id}/resume", "{given.id}  resume requested"),
        "id",
    ),
    Command(
        "bulk cancel",
        "cancel a bulk action; what was done stays done",
        Ask("DELETE bulk-actions/{id}", "{given.id}  cancel requested; what was done stays done"),
        "id",
    ),
)
