"""Commands about dependencies, their circuits and their policies, and about the app's health."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from retryctl import errors
from retryctl.api import Api
from retryctl.documents import given_options, pause_options, retry_table
from retryctl.errors import UsageError
from retryctl.layout import cell, cells, facts, instant, state, table
from retryctl.screen import Screen, plot_waits, span


def list_dependencies(api: Api, _: Namespace, screen: Screen) -> int:
    """List dependencies with their policies."""
    document = api.get("dependencies")
    rows = [
        (
            each["name"],
            each["base_url"],
            each["retry"]["strategy"],
            each["retry"]["max_attempts"],
            each["retry"]["jitter"],
            span(each["timeouts"]["attempt_seconds"]),
            _limit(each["timeouts"]["deadline_seconds"]),
        )
        for each in document["items"]
    ]
    headers = ("DEPENDENCY", "URL", "STRATEGY", "ATTEMPTS", "JITTER", "ATTEMPT", "DEADLINE")
    screen.show(document, table(headers, rows))
    return errors.OK


def health(api: Api, _: Namespace, screen: Screen) -> int:
    """Show whether the app can accept operations."""
    document = api.health()
    rows = [
        (name, state("works") if part["healthy"] else part["detail"])
        for name, part in document["parts"].items()
    ]
    screen.show(document, table(("PART", "STATE"), rows))
    return errors.OK if document["status"] == "healthy" else errors.UNREACHABLE


def preview_policy(api: Api, args: Namespace, screen: Screen) -> int:
    """Show the waits of a policy, as a table and as a plot."""
    retry = retry_table(args.retry)
    if args.dependency is None and not retry:
        raise UsageError("give --dependency, or --retry, or both")
    body = given_options(args, "dependency", "deadline_seconds") | ({"retry": retry} if retry else {})
    document = api.post("policies", "preview", body=body)
    screen.show(document, _preview_text(document))
    return errors.OK


def list_circuits(api: Api, _: Namespace, screen: Screen) -> int:
    """List every circuit."""
    document = api.get("circuits")
    rows = [
        [
            *cells(each, "dependency", "state", "calls", "failures"),
            _percent(each["failure_ratio"]),
            instant(each["retry_at"] or each["throttled_until"]),
            each["reason"],
        ]
        for each in document["items"]
    ]
    headers = ("DEPENDENCY", "STATE", "CALLS", "FAILURES", "RATIO", "UNTIL", "REASON")
    screen.show(document, table(headers, rows))
    return errors.OK


def show_circuit(api: Api, args: Namespace, screen: Screen) -> int:
    """Show one circuit and its manual changes."""
    document = api.get("circuits", args.dependency)
    screen.show(document, _circuit_text(document))
    return errors.OK


def metrics(api: Api, args: Namespace, screen: Screen) -> int:
    """Show what happened to each dependency in the last minutes."""
    begin = datetime.now(UTC) - timedelta(minutes=args.minutes)
    query = {"dependency": args.dependency, "from": begin.isoformat().replace("+00:00", "Z")}
    document = api.get("metrics", **query)
    rows = [
        (
            each["dependency"],
            each["attempts"],
            each["failures"],
            each["retries"],
            None if each["amplification"] is None else f"{each['amplification']:.2f}",
            *(_milliseconds(each["attempt_ms"][share]) for share in ("p50", "p95")),
            each["ended"],
            *(_milliseconds(each["operation_ms"][share]) for share in ("p50", "p95")),
            each["openings"],
        )
        for each in document["dependencies"]
    ]
    headers = ("DEPENDENCY", "ATTEMPTS", "FAILED", "RETRIES", "AMPLIFIED", "P50", "P95")
    shown = [table((*headers, "ENDED", "OPERATION P50", "P95", "OPENINGS"), rows)]
    screen.show(document, "\n\n".join([*shown, *_priorities_and_debounces(document["dependencies"])]))
    return errors.OK


def _priorities_and_debounces(dependencies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield tables of what happened by priority and to debounce keys, each where there is any."""
    rows = [
        (
            each["dependency"],
            priority,
            of_one["started"],
            of_one["waits"]["count"],
            span(of_one["waits"]["seconds"]),
            *(_milliseconds(of_one["operation_ms"][share]) for share in ("p50", "p95")),
        )
        for each in dependencies
        for priority, of_one in each.get("by_priority", {}).items()
    ]
    if rows:
        headers = ("DEPENDENCY", "PRIORITY", "ACCEPTED", "WAITS", "WAITED", "OPERATION P50", "P95")
        yield table(headers, rows)
    names = ("debounce_replaced", "debounce_ran")
    counts = [(each["dependency"], *(each.get(name, 0) for name in names)) for each in dependencies]
    debounced = [row for row in counts if any(row[1:])]
    if debounced:
        yield table(("DEPENDENCY", "DEBOUNCED AWAY", "RAN AFTER DEBOUNCE"), debounced)


def change_circuit(api: Api, args: Namespace, screen: Screen) -> int:
    """Open, close, disable or reset a circuit."""
    body = pause_options(args)
    document = api.post("circuits", args.dependency, args.action, body=body)
    duration = "" if args.for_seconds is None else f" for {span(args.for_seconds)}"
    deadlines = ", deadlines stop meanwhile" if args.stop_deadline else ""
    screen.show(document, f"{args.dependency}  {args.action}{duration}{deadlines}: {cell(args.reason)}")
    return errors.OK


def _preview_text(document: Mapping[str, Any]) -> str:
    waits, total = document["waits"], document["total"]
    rows = [(each["after_attempt"], *_spans(each)) for each in waits]
    rows.append(("total", *_spans(total)))
    attempts = span(total["attempts_at_most_seconds"])
    fit = "fits" if document["fits_deadline"] else "does NOT fit"
    deadline = _limit(document["deadline_seconds"])
    lines = [
        table(("AFTER ATTEMPT", "LEAST", "EXPECTED", "MOST"), rows),
        f"\nattempts take at most {attempts} besides; all of it {fit} the deadline ({deadline})",
    ]
    if not document["waits_complete"]:
        lines.append("only the first waits are listed")
    lines.extend(f"warning: {warning}" for warning in document.get("warnings", ()))
    return "\n".join([*lines, *(["", plot_waits(waits)] if waits else [])])


def _spans(waits: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(span(waits[f"{name}_seconds"]) for name in ("least", "expected", "most"))


def _limit(seconds: float) -> str:
    return "none" if seconds == 0 else span(seconds)


def _circuit_text(document: Mapping[str, Any]) -> str:
    first, latest = document["first_opened_at"], document["opened_at"]
    text = facts(
        (
            ("dependency", document["dependency"]),
            ("state", state(document["state"])),
            ("calls", f"{document['calls']}, {document['failures']} failed, {document['slow_calls']} slow"),
            ("ratio", _percent(document["failure_ratio"])),
            ("opened", instant(first)),
            ("opened again", None if latest == first else instant(latest)),
            ("tries again", instant(document["retry_at"])),
            ("paused until", instant(document["throttled_until"])),
            ("waiting", document["waiting"]),
            ("reason", document["reason"]),
            ("changed by", document["changed_by"]),
        )
    )
    changes = [cells(each, "at", "action", "by", "reason") for each in document["audit"]]
    return text if not changes else f"{text}\n\n{table(('WHEN', 'ACTION', 'BY', 'REASON'), changes)}"


def _milliseconds(milliseconds: float | None) -> str | None:
    return None if milliseconds is None else span(milliseconds / 1000)


def _percent(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.0%}"
