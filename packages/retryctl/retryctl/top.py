"""The command `top`: what ails, what waits and what failed, redrawn while one looks."""

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from retryctl import errors, watching
from retryctl.api import Api
from retryctl.commands import Command, Given
from retryctl.dead_letters import standing
from retryctl.errors import UnreachableError
from retryctl.output import Rows, Screen, instant, plural, printable, spaced, state

_AILING: Final = ("open", "forced_open", "half_open", "paused")
_UNDER_WAY: Final = ("pending", "running")


def _top(api: Api, given: Given, screen: Screen) -> int:
    """Show dependencies, waits and causes, again and again on a terminal until Ctrl-C, otherwise once."""
    minutes, every = given.get("minutes", 15), given.get("every", 2.0)

    def look() -> Any:
        return api.ask("GET overview", {"window_seconds": minutes * 60})

    def view(document: Any, trouble: str = "") -> Iterator[RenderableType]:
        if trouble:
            yield state("unhealthy", f": {trouble}")
            yield "this is what it said last:"
        yield from spaced(_parts(printable(document), api.url, minutes))

    document = look()
    if not screen.is_live:
        screen.show(document, view)
        return errors.OK
    try:
        with screen.whole() as draw:
            draw(view(document))
            while True:
                watching.pause(every)
                try:
                    document = look()
                    draw(view(document))
                except UnreachableError as error:
                    draw(view(document, printable(str(error))))
    except KeyboardInterrupt:
        return errors.OK


def _parts(document: Any, url: str, minutes: int) -> Iterator[list[RenderableType]]:
    yield [_head(document, url), *_numbers(document, minutes)]
    if document["alerts"]:
        alerts = [alert | {"raised": watching.ago(alert["raised_at"])} for alert in document["alerts"]]
        yield [Rows(alerts, "text:alert raised")]
    waits = list(_waits(document))
    columns = "dependency state:circuit failed amplification:attempts waiting dead next reason"
    yield [Rows(_dependencies(document, waits), columns, empty="no dependency is known")]
    waits.sort(key=lambda row: -row["count"])
    yield [Rows(waits, "count:waiting status:for dependency next key", empty="no operation waits")]
    yield list(_causes(document["dead_letters"] or {"groups": (), "others": {"causes": 0}}))


def _causes(letters: Any) -> Iterator[RenderableType]:
    causes = [
        group | {"standing": standing(group), "seen": watching.ago(group["last_seen_at"])}
        for group in letters["groups"]
    ]
    columns = "count:dead group:cause standing:status sample.dependency seen:last_seen sample.detail:sample"
    yield Rows(causes, columns, empty="no dead letter is open")
    others = letters["others"]
    if others["causes"]:
        yield f"and {plural(others['causes'], 'more cause')}, {plural(others['open'], 'dead letter')}"


def _head(document: Any, url: str) -> Text:
    health = document["health"]
    sick = [] if health is None else [name for name, part in health["parts"].items() if not part["healthy"]]
    word = state("unhealthy", f": {', '.join(sick)}") if sick else state("works" if health else "unknown")
    return Text.assemble((url, "bold"), f"  {instant(watching.now().isoformat())}  ", word)


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
    yield from (f"not known: {name} ({failure})" for name, failure in document["unavailable"].items())


def _least(is_complete: object) -> str:
    return "" if is_complete else "at least "


def _dependencies(document: Any, waits: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of dependencies, those that ail first."""
    shares = (document["operations"] or {"by_dependency": {}})["by_dependency"]
    letters = document["dead_letters"]
    rows = []
    for circuit in document["circuits"] or ():
        name, ratio, ails = circuit["dependency"], circuit["failure_ratio"], circuit["state"] in _AILING
        waiting = sum(row["count"] for row in waits if row["dependency"] == name)
        dead = None if letters is None else letters["by_dependency"].get(name, {"open": 0})["open"]
        made = {
            "failed": None if ratio is None else f"{ratio:.0%} of {circuit['calls']}",
            "amplification": shares.get(name, {"amplification": None})["amplification"],
            "waiting": waiting,
            "dead": dead,
            "next": _next(circuit["retry_at"] or circuit["throttled_until"]),
            "reason": _why(circuit) if ails or circuit["throttled_until"] else None,
        }
        # What refuses requests ails too, and opens no circuit.
        rows.append(((not ails, -waiting - (dead or 0), name), circuit | made))
    return [row for _, row in sorted(rows, key=itemgetter(0))]


def _why(circuit: Any) -> str:
    """Return why calls of a dependency do not go, with the error behind it."""
    if circuit["last_error"]:
        return f"{circuit['last_error']}, since {instant(circuit['first_opened_at'])}"
    if circuit["throttled_until"]:
        return f"paused by {circuit['throttled_by']} until {instant(circuit['throttled_until'])}"
    return str(circuit["reason"])


def _waits(document: Any) -> Iterator[dict[str, Any]]:
    """Yield how many wait for what at each dependency, with the next attempt of them."""
    unfinished = (document["operations"] or {}).get("unfinished") or {
        "by_dependency": {},
        "next_attempts": (),
    }
    nearest = {(each["dependency"], each["status"]): each for each in reversed(unfinished["next_attempts"])}
    for name, counts in unfinished["by_dependency"].items():
        for kind, count in counts.items():
            if count and kind not in _UNDER_WAY:
                first = nearest.get((name, kind), {"key": None, "next_attempt_at": None})
                made = {"dependency": name, "status": kind, "next": _next(first["next_attempt_at"])}
                yield made | {"count": count, "key": first["key"]}


def _next(at: str | None) -> str | None:
    return None if at is None else f"in {watching.left(at, None)}"


COMMANDS: Final = (
    Command(
        "top",
        "show dependencies, waits and causes (15 minutes of counts), redrawn on a terminal until Ctrl-C",
        _top,
        "minutes every",
    ),
)
