"""The command `top`: what ails, what waits and what failed, redrawn while one looks."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from retryctl import clock, errors
from retryctl.api import Api
from retryctl.commands import Command, Given
from retryctl.dead_letters import standing
from retryctl.errors import UnreachableError
from retryctl.output import Lines, Rows, Screen, instant, plural, spaced, state, whose

_UNDER_WAY: Final = ("pending", "running")


def _top(api: Api, given: Given, screen: Screen) -> int:
    """Show dependencies, waits and causes, again and again on a terminal until Ctrl-C, otherwise once."""
    minutes, every = given.get("minutes", 15), given.get("every", 2.0)

    def look() -> Any:
        return api.ask("GET overview", {"window_seconds": minutes * 60})

    def view(document: Any, trouble: str = "") -> Lines:
        if trouble:
            yield state("unhealthy", f": {trouble}")
            yield "its last answer:"
        yield from spaced(_parts(document, api.url, minutes))

    document = look()
    if not screen.is_live:
        screen.show(document, view)
        return errors.OK
    try:
        with screen.whole() as draw:
            draw(view(document))
            while True:
                clock.pause(every)
                try:
                    document = look()
                    draw(view(document))
                except UnreachableError as error:
                    draw(view(document, str(error)))
    except KeyboardInterrupt:
        return errors.OK


def _parts(document: Any, url: str, minutes: int) -> Iterator[Lines]:
    yield [_head(document, url), *_numbers(document, minutes)]
    if document["alerts"]:
        alerts = [alert | {"raised": clock.ago(alert["raised_at"])} for alert in document["alerts"]]
        yield [Rows(alerts, "text:alert raised")]
    if document["circuits"]:
        yield list(_dependencies(document["circuits"]))
    waits = list(_waits(document))
    columns = "count:waiting status:for dependency next key whose?:limit_key"
    yield [Rows(waits, columns, empty="no operation waits")]
    yield list(_causes(document["dead_letters"] or {"groups": (), "others": {"causes": 0}}))


def _causes(letters: Any) -> Lines:
    causes = [
        group
        | {"standing": standing(group), "seen": clock.ago(group["last_seen_at"])}
        | {"whose": whose(group.get("limit_keys"), group["count"])}
        for group in letters["groups"]
    ]
    columns = (
        "count:dead group:cause standing:status sample.dependency whose?:limit_key seen:last_seen "
        "sample.detail:sample"
    )
    yield Rows(causes, columns, empty="no dead letter is open")
    others = letters["others"]
    if others["causes"]:
        yield f"and {plural(others['causes'], 'more cause')}, {plural(others['open'], 'dead letter')}"


def _head(document: Any, url: str) -> Text:
    health = document["health"]
    sick = [] if health is None else [name for name, part in health["parts"].items() if not part["healthy"]]
    word = state("unhealthy", f": {', '.join(sick)}") if sick else state("works" if health else "unknown")
    return Text.assemble((url, "bold"), f"  {instant(clock.now().isoformat())}  ", word)


def _numbers(document: Any, minutes: int) -> Iterator[str]:
    """Yield what there is of each kind, as far as the parts are known."""
    if unfinished := (document["operations"] or {}).get("unfinished"):
        counts = unfinished["by_status"]
        under_way = sum(counts[name] for name in _UNDER_WAY)
        waiting = sum(counts.values()) - under_way
        yield f"{_least(unfinished['complete'])}{waiting} waiting, {under_way} under way"
    if letters := document["dead_letters"]:
        yield f"{_least(letters['complete'])}{plural(letters['open'], 'open dead letter')}"
    if events := document["outbox"]:
        counts = (
            f"{_least(events[f'{name}_complete'])}{events[name]} {name}" for name in ("pending", "failed")
        )
        yield f"events: {', '.join(counts)}"
    if figures := document["metrics"]:
        yield "in {} min: {attempts} attempts, {failures} failed, {ended} ended".format(minutes, **figures)
    if old := document["as_of"]:
        # Some of them are older than the others.
        names = {"operations": "some operations"}
        ages = sorted((names.get(name, name.replace("_", " ")), clock.ago(at)) for name, at in old.items())
        yield ", ".join(f"{name} read {ago}" for name, ago in ages)
    yield from (f"not known: {name} ({failure})" for name, failure in document["unavailable"].items())


def _least(is_complete: object) -> str:
    return "" if is_complete else "at least "


def _dependencies(circuits: Any) -> Lines:
    """Yield those in trouble, the worst first, and the names of those that are healthy."""
    rows = [_dependency(circuit) for circuit in circuits if not circuit["healthy"]]
    healthy = ", ".join(circuit["dependency"] for circuit in circuits if circuit["healthy"])
    if rows:
        yield Rows(rows, "dependency state:circuit waiting dead failed amplification:attempts next why")
    if healthy:
        yield f"healthy: {healthy}"


def _dependency(circuit: Mapping[str, Any]) -> Mapping[str, Any]:
    ratio = circuit["failure_ratio"]
    made = {
        "state": _standing(circuit),
        "failed": None if ratio is None else f"{ratio:.0%} of {circuit['calls']}",
        "dead": circuit["open_dead_letters"],
        "next": _next(max(filter(None, (circuit["retry_at"], circuit["throttled_until"])), default=None)),
    }
    return {**circuit, **made}


def _standing(circuit: Mapping[str, Any]) -> str:
    """Return the state of a circuit; what binds its calls before it: a refused credential, a pause."""
    keys = circuit.get("limit_keys", ())
    if any(each.get("credential_refused_by") for each in (circuit, *keys)):
        return "refused"
    if _is_paused(circuit):
        return "paused"
    if circuit["state"] != "closed" or not keys:
        return str(circuit["state"])
    open_keys = sum(not _is_paused(key) for key in keys)
    return f"{'open' if open_keys else 'paused'} for {plural(open_keys or len(keys), 'key')}"


def _is_paused(circuit: Mapping[str, Any]) -> bool:
    return bool(circuit["throttled_until"]) and circuit["state"] != "forced_open"


def _waits(document: Any) -> Iterator[dict[str, Any]]:
    """Yield how many wait for what at each dependency, and whose, with the next attempt of them."""
    for each in ((document["operations"] or {}).get("unfinished") or {"waiting": ()})["waiting"]:
        first = each["first"] or {"key": None, "next_attempt_at": None}
        made = {"next": _next(first["next_attempt_at"]), "key": first["key"]}
        yield {**each, **made, "whose": whose(each.get("limit_keys"), each["count"])}


def _next(at: str | None) -> str | None:
    return None if at is None else f"in {clock.left(at, None)}"


COMMANDS: Final = (
    Command(
        "top",
        "show dependencies, waits and causes (15 minutes of counts), redrawn on a terminal until Ctrl-C",
        _top,
        "minutes every",
    ),
)
