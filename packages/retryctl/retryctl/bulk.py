"""Commands about many at once: bulk actions on dead letters or operations."""

from typing import Any, Final

from retryctl import clock
from retryctl.commands import Ask, Command, Given, Listing, Watch
from retryctl.dead_letters import change_text
from retryctl.errors import UsageError
from retryctl.output import Lines, Screen, bar, fill, filled

_FINISHED: Final = frozenset({"completed", "stopped", "cancelled"})
_FILTERS: Final = (
    *("status", "reason", "category", "dependency", "group", "app_version"),
    *("order_key", "limit_key", "debounce_key", "priority", "created_after", "created_before"),
)
_ENDS: Final = ("succeeded", "failed_again", "under_way", "refused")
"""How what was started has ended."""


def _text(document: Any) -> Lines:
    """Yield how far it is, why it stopped, and what failed."""
    counts = ", ".join(
        f"{document[name]} {name.replace('_', ' ')}"
        for name in ("matched", "started", *_ENDS[:-1], "skipped", "failed", "remaining")
    )
    yield fill("{action_id}  {action} {status}: {counts}[\n  {reason}]", document | {"counts": counts})
    yield from filled("  {id}: {detail}", document["failures"])


def _live(document: Any) -> str:
    done = document["matched"] - document["remaining"]
    text = f"{bar(done, document['matched'])}  {done} of {document['matched']}  {document['status']}"
    text += f", {document['under_way']} under way" if document["under_way"] else ""
    until = document["waiting_until"]
    return text if until is None else f"{text}, waits for a circuit, looks again in {clock.left(until)}"


def _change(_before: Any, document: Any) -> Lines:
    return _text(document) if document["status"] in _FINISHED else ()


_WATCH: Final = Watch(
    *("bulk-actions", "action_id", _FINISHED, _live, _change),
    lambda ended: ended["status"] == "completed" and not (ended["failed"] or ended["failed_again"]),
)


def _started(document: Any) -> Lines:
    """Yield what was started; of a dry run what would change in the first ones, or why it is refused."""
    name, is_dry = document["given"]["action"].replace("_", "-"), document["given"]["dry_run"]
    if not is_dry:
        yield fill(f"{{action_id}}  {name} of {{matched}}", document)
        return
    yield f"{name} would act on {'' if document['complete'] else 'at least '}{document['matched']}"
    letters = document.get("preview", ())
    if letters and not any(letter["changes"] or letter["errors"] for letter in letters):
        yield "nothing changes"
        return
    for letter in letters:
        yield fill("{id}[  {key}]", letter)
        yield from (f"  {change_text(change)}" for change in letter["changes"])
        yield from filled("  refused {pointer:/}: {detail}", letter["errors"])
        if not (letter["changes"] or letter["errors"]):
            yield "  nothing changes"


def _chosen(given: Given, _: Screen) -> Given:
    """Return a bulk action on what matches the filters, the given ids or a batch.

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
    return {"dry_run": False, **given, "action": name.replace("-", "_"), **own}


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
        Ask("POST bulk-actions", "matched", _started, _WATCH, body=_chosen),
        "action many all batch any_status letters pause change pace proof",
    ),
    Command(
        "bulk list",
        "list bulk actions, newest first",
        Listing("bulk-actions", _COLUMNS, "action_id"),
        "list",
    ),
    Command(
        "bulk show", "show how far a bulk action is", Ask("GET bulk-actions/{id}", "action_id", _text), "id"
    ),
    Command("bulk items", "list what became of each item, the latest first", _ITEMS, "id list"),
    Command("bulk watch", "follow a bulk action until it ends", _WATCH, "id"),
    Command(
        "bulk resume",
        "continue one that has stopped: it sends 1, then 5, then the rest",
        Ask("POST bulk-actions/{id}/resume", "action_id", "{action_id}  resume requested"),
        "id",
    ),
    Command(
        "bulk cancel",
        "cancel a bulk action; what was done stays done",
        Ask(
            "DELETE bulk-actions/{id}", "action_id", "{action_id}  cancel requested; what was done stays done"
        ),
        "id",
    ),
)
