"""Commands about dependencies and policies."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from retryctl import exit_codes
from retryctl.api import Api
from retryctl.documents import retry_table
from retryctl.exit_codes import UsageError
from retryctl.plot import waits_plot
from retryctl.screen import Screen
from retryctl.tables import span, table


def list_all(api: Api, _: Namespace, screen: Screen) -> int:
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
    return exit_codes.OK


def preview(api: Api, args: Namespace, screen: Screen) -> int:
    """Show what a policy would do, as a table and as a plot."""
    retry = retry_table(args.retry)
    if args.dependency is None and not retry:
        raise UsageError("give --dependency, or --retry, or both")
    question = {
        "dependency": args.dependency,
        "retry": retry or None,
        "deadline_seconds": args.deadline_seconds,
    }
    body = {name: value for name, value in question.items() if value is not None}
    document = api.post("policies", "preview", body=body)
    screen.show(document, _text(document))
    return exit_codes.OK


def health(api: Api, _: Namespace, screen: Screen) -> int:
    """Tell whether the app can take operations over."""
    document = api.health()
    rows = [
        (name, "works" if part["healthy"] else part["detail"]) for name, part in document["parts"].items()
    ]
    screen.show(document, table(("PART", "STATE"), rows))
    return exit_codes.OK if document["status"] == "healthy" else exit_codes.UNREACHABLE


def _text(document: Mapping[str, Any]) -> str:
    waits, total = document["waits"], document["total"]
    rows = [(each["after_attempt"], *_spans(each)) for each in waits]
    rows.append(("total", *_spans(total)))
    attempts = span(total["attempts_at_most_seconds"])
    verdict = "fits" if document["fits_deadline"] else "does NOT fit"
    deadline = _limit(document["deadline_seconds"])
    lines = [
        table(("AFTER ATTEMPT", "LEAST", "EXPECTED", "MOST"), rows),
        f"\nattempts take at most {attempts} besides; all of it {verdict} the deadline ({deadline})",
    ]
    if not document["waits_complete"]:
        lines.append("only the first waits are listed")
    return "\n".join([*lines, *(["", waits_plot(waits)] if waits else [])])


def _spans(waits: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(span(waits[f"{name}_seconds"]) for name in ("least", "expected", "most"))


def _limit(seconds: float) -> str:
    return "none" if seconds == 0 else span(seconds)
