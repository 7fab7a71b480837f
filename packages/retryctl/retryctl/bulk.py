"""Commands about many at once: bulk actions on dead letters or operations, and bulk replays.

Both are listed, shown and followed by the same commands: their documents have the same form.
"""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import RenderableType

from retryctl import errors, watching
from retryctl.api import Api
from retryctl.commands import Ask, Command, Given, Listing, Watch
from retryctl.dead_letters import change_text
from retryctl.errors import UsageError
from retryctl.output import Screen, bar, cell, fill

_FINISHED: Final = frozenset({"completed", "cancelled", "failed"})
_FILTERS: Final = (
    *("status", "reason", "category", "dependency", "group", "order_key", "debounce_key", "priority"),
    *("created_after", "created_before"),
)
_ENDS: Final = ("succeeded", "failed_again", "under_way", "refused")
"""How what was started has ended."""


def _text(document: Any) -> Iterator[RenderableType]:
    """Yield how far it is, and what failed."""
    action = f"{document['action']} " if "action" in document else ""
    done = "done" if action else "replayed"
    counts = ", ".join(
        f"{document[name]} {name.replace('_', ' ')}"
        for name in ("matched", done, *_ENDS[:-1], "skipped", "failed", "remaining")
        if document[name] is not None
    )
    id_ = document["action_id" if action else "replay_id"]
    yield fill("{id}  {action}{status}: {counts}", document | {"id": id_, "action": action, "counts": counts})
    yield from (f"  {failure['id']}: {cell(failure['detail'])}" for failure in document["failures"])


def _live(document: Any) -> str:
    done = document["matched"] - document["remaining"]
    text = f"{bar(done, document['matched'])}  {done} of {document['matched']}  {document['status']}"
    text += f", {document['under_way']} under way" if document["under_way"] else ""
    until = document["waiting_until"]
    return text if until is None else f"{text}, looks again in {watching.left(until)}"


def _change(_before: Any, document: Any) -> Iterator[RenderableType]:
    return _text(document) if document["status"] in _FINISHED else iter(())


def _watch(path: str, id_name: str) -> Watch:
    return Watch(
        *(path, id_name, _FINISHED, _live, _change),
        lambda ended: ended["status"] == "completed" and not (ended["failed"] or ended["failed_again"]),
    )


_ACTION: Final = _watch("bulk-actions", "action_id")
_REPLAY: Final = _watch("dead-letters/replays", "replay_id")


def _preview(document: Any) -> Iterator[RenderableType]:
    """Yield what a change would do to the first ones, or why it does not fit; nothing without a change."""
    for letter in document.get("preview", ()):
        yield letter["id"]
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
    reason = {"reason": given.pop("reason")} if name == "pause" and "reason" in given else {}
    if name != "pause" and not given.keys().isdisjoint(("for_seconds", "stops_deadline")):
        raise UsageError("--for-seconds and --stop-deadline are of a pause")
    filter_, is_all = _filter_of(given), given.pop("all", False)
    if sum(map(bool, (filter_, is_all, given.get("ids"), given.get("batch_id")))) != 1:
        raise UsageError("give filters, or ids, or --batch, or --all")
    if filter_ or is_all:
        given["filter"] = filter_
    given |= {"action": name.replace("-", "_"), **reason}
    started = f"{{action_id}}  {name} of {{matched}}"
    return _begin(api, given, screen, Ask("POST bulk-actions", started, _ACTION), f"{name} would meet")


def _start_replay(api: Api, given: Given, screen: Screen) -> int:
    given["filter"] = _filter_of(given)
    started = Ask("POST dead-letters/replays", "{replay_id}  replays {matched} dead letters", _REPLAY)
    return _begin(api, given, screen, started, "would be replayed:")


def _filter_of(given: Given) -> Given:
    return {name: given.pop(name) for name in _FILTERS if name in given}


def _begin(api: Api, given: Given, screen: Screen, ask: Ask, counted: str) -> int:
    if not given.setdefault("dry_run", False):
        return ask(api, given, screen)
    document = api.ask(ask.route, given)
    least = "" if document.get("complete", True) else "at least "
    count = f"{counted} {least}{document['matched']}"
    screen.show(document, lambda shown: [count, *_preview(shown)])
    return errors.OK


def _started(group: str, what: str, watch: Watch, head: str, done: str) -> Iterator[Command]:
    """Yield the commands about those that were started."""
    columns = f"{head} status matched {' '.join(_ENDS)} remaining created_at by note"
    items = "id outcome what:operation status:now failed_again:failed_again_as at detail:why"
    made = {"what": lambda item: item["event_id"] or item["operation_id"]}
    path, stays = watch.path, f"what was {done} stays {done}"
    cancel = Ask(f"DELETE {path}/{{id}}", f"{{given.id}}  cancel requested; {stays}")
    yield Command(
        f"{group} list", f"list {what}s, newest first", Listing(path, columns, watch.id_name), "list"
    )
    yield Command(f"{group} show", f"show the progress of a {what}", Ask(f"GET {path}/{{id}}", _text), "id")
    words = f"list what became of each item of a {what}, the latest first"
    yield Command(f"{group} items", words, Listing(f"{path}/{{id}}/items", items, "id", made), "id list")
    yield Command(f"{group} watch", f"follow a {what} until it ends", watch, "id")
    yield Command(f"{group} cancel", f"cancel a {what}; {stays}", cancel, "id")


COMMANDS: Final = (
    Command(
        "replays start",
        "replay every open dead letter that matches the filters",
        _start_replay,
        "letters pace",
    ),
    *_started("replays", "bulk replay", _REPLAY, "replay_id", "replayed"),
    Command(
        "bulk start",
        "act on every one that matches the filters, or on those that are named",
        _start,
        "action many all batch any_status letters pause pace",
    ),
    *_started("bulk", "bulk action", _ACTION, "action_id:id action", "done"),
)
