"""The command `top`: what ails, what waits and what failed, redrawn while one looks."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any, Final

from retryctl import errors, watching
from retryctl.api import Api
from retryctl.causes import standing
from retryctl.errors import UnreachableError
from retryctl.layout import bold, cell, instant, printable, state, table
from retryctl.screen import Screen, span

_MINUTE: Final = 60
_AILING: Final = ("open", "forced_open", "half_open", "paused")
_UNDER_WAY: Final = ("pending", "running")


def top(api: Api, args: Namespace, screen: Screen) -> int:
    """Show dependencies, waits and causes, again and again on a terminal until Ctrl-C, otherwise once."""
    query = {"window_seconds": args.minutes * _MINUTE}
    document = api.get("overview", **query)
    if not screen.is_live:
        screen.show(document, _text(document, api.url, args.minutes))
        return errors.OK
    trouble = ""
    try:
        with screen.whole() as draw:
            while True:
                draw(trouble + _text(document, api.url, args.minutes))
                watching.pause(args.every)
                try:
                    document, trouble = api.get("overview", **query), ""
                except UnreachableError as error:
                    trouble = (
                        f"{state('unhealthy', f': {printable(str(error))}')}\nthis is what it said last:\n"
                    )
    except KeyboardInterrupt:
        return errors.OK


def _text(document: Mapping[str, Any], url: str, minutes: int) -> str:
    parts = [_head(document, url, minutes), *_alerts(document), _dependencies(document)]
    return "\n\n".join([*parts, _waits(document), _causes(document)])


def _head(document: Mapping[str, Any], url: str, minutes: int) -> str:
    health = document["health"]
    sick = [] if health is None else [name for name, part in health["parts"].items() if not part["healthy"]]
    word = state("unhealthy", f": {', '.join(sick)}") if sick else state("works" if health else "unknown")
    now = instant(watching.now().isoformat())
    lines = [f"{bold(url)}  {now}  {word}", *_numbers(document, minutes)]
    lines += [f"not known: {name} ({failure})" for name, failure in document["unavailable"].items()]
    return "\n".join(lines)


def _numbers(document: Mapping[str, Any], minutes: int) -> Iterator[str]:
    """Yield what there is of each kind, as far as the parts are known."""
    if unfinished := (document["operations"] or {}).get("unfinished"):
        counts = unfinished["by_status"]
        least = "" if unfinished["complete"] else "at least "
        under_way = sum(counts[name] for name in _UNDER_WAY)
        yield f"{least}{sum(counts.values()) - under_way} waiting, {under_way} under way"
    if letters := document["dead_letters"]:
        yield f"{letters['open']} open dead letters"
    if events := document["outbox"]:
        counts = ", ".join(_count_of_events(events, name) for name in ("pending", "failed"))
        yield f"events: {counts}"
    if figures := document["metrics"]:
        attempts, failures, ended = (figures[name] for name in ("attempts", "failures", "ended"))
        yield f"in {minutes} min: {attempts} attempts, {failures} failed, {ended} ended"


def _count_of_events(events: Mapping[str, Any], state_: str) -> str:
    least = "" if events[f"{state_}_complete"] else "at least "
    return f"{least}{events[state_]} {state_}"


def _alerts(document: Mapping[str, Any]) -> list[str]:
    rows = [
        (state(each["state"]), each["text"], _ago(each["raised_at"])) for each in document["alerts"] or ()
    ]
    return [table(("ALERT", "TEXT", "RAISED"), rows)] if rows else []


def _dependencies(document: Mapping[str, Any]) -> str:
    """Lay the dependencies out, those that ail first."""
    operations = document["operations"] or {"by_dependency": {}}
    waiting = _waiting_of(document)
    letters = document["dead_letters"]

    def dead(name: str) -> int | None:
        return None if letters is None else letters["by_dependency"].get(name, {"open": 0})["open"]

    def row(circuit: Mapping[str, Any]) -> tuple[Any, ...]:
        name, ratio = circuit["dependency"], circuit["failure_ratio"]
        share = operations["by_dependency"].get(name, {"amplification": None})
        until = circuit["retry_at"] or circuit["throttled_until"]
        return (
            name,
            state(circuit["state"]),
            None if ratio is None else f"{ratio:.0%} of {circuit['calls']}",
            None if share["amplification"] is None else f"{share['amplification']:.2f}",
            sum(waiting.get(name, {}).values()),
            dead(name),
            None if until is None else _in(until),
            circuit["reason"] if circuit["state"] in _AILING else None,
        )

    def urgency(circuit: Mapping[str, Any]) -> tuple[bool, int, str]:
        name = circuit["dependency"]
        # What refuses requests ails too, and opens no circuit.
        held = sum(waiting.get(name, {}).values()) + (dead(name) or 0)
        return circuit["state"] not in _AILING, -held, name

    rows = map(row, sorted(document["circuits"] or (), key=urgency))
    headers = ("DEPENDENCY", "CIRCUIT", "FAILED", "ATTEMPTS", "WAITING", "DEAD", "NEXT", "REASON")
    return table(headers, rows, empty="no dependency is known")


def _waiting_of(document: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return how many operations wait, by dependency and kind of wait."""
    unfinished = (document["operations"] or {}).get("unfinished") or {"by_dependency": {}}
    return {
        name: {kind: count for kind, count in counts.items() if count and kind not in _UNDER_WAY}
        for name, counts in unfinished["by_dependency"].items()
    }


def _waits(document: Mapping[str, Any]) -> str:
    """Lay out what waits, the most first."""
    unfinished = (document["operations"] or {}).get("unfinished") or {"next_attempts": ()}
    rows = []
    for name, counts in _waiting_of(document).items():
        for kind, count in counts.items():
            nearest = (
                each
                for each in unfinished["next_attempts"]
                if (each["dependency"], each["status"]) == (name, kind)
            )
            first = next(nearest, {"key": None, "next_attempt_at": None})
            when = None if first["next_attempt_at"] is None else _in(first["next_attempt_at"])
            rows.append((count, state(kind), name, when, first["key"]))
    rows.sort(key=lambda row: -row[0])
    return table(("WAITING", "FOR", "DEPENDENCY", "NEXT", "KEY"), rows, empty="no operation waits")


def _causes(document: Mapping[str, Any]) -> str:
    """Lay out the root causes of open dead letters, the latest first."""
    rows = [
        (
            each["count"],
            each["group"],
            standing(each),
            each["sample"]["dependency"],
            _ago(each["last_seen_at"]),
            cell(each["sample"]["detail"]),
        )
        for each in (document["dead_letters"] or {"groups": ()})["groups"]
    ]
    headers = ("DEAD", "CAUSE", "STATUS", "DEPENDENCY", "LAST SEEN", "SAMPLE")
    return table(headers, rows, empty="no dead letter is open")


def _in(at: str) -> str:
    return f"in {span(round(watching.seconds_until(at)))}"


def _ago(at: str) -> str:
    return f"{span(round(watching.seconds_since(at)))} ago"
