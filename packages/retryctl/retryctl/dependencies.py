"""Commands about dependencies, their circuits, policies and metrics, and about the app's health."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from retryctl import clock, errors
from retryctl.api import Api
from retryctl.commands import Ask, Command, Given
from retryctl.errors import UsageError
from retryctl.output import Lines, Rows, Screen, facts, fill, spaced, span

PLOT_WIDTH: Final = 60
_PLOT_ROWS: Final = 20
_DEPENDENCIES: Final = (
    "name:dependency base_url:url retry.strategy retry.max_attempts:attempts retry.jitter "
    "timeouts.attempt_seconds deadline"
)
_CIRCUIT: Final = (
    "dependency limit_key state why counts:calls failure_ratio:ratio first_opened_at:opened opened_again_at "
    "failed_probes last_error "
    "retry_at:tries_again throttled_until:paused_until waiting most_waiting reason changed_by"
)
_OF_OPERATION: Final = "operation_ms.p50:operation_P50 operation_ms.p95"
_METRICS: Final = (
    "dependency attempts failures:failed retries amplification:amplified attempt_ms.p50 attempt_ms.p95 ended "
    f"{_OF_OPERATION} openings"
)
_MOST_MINUTES: Final = 7 * 24 * 60  # so long are they kept


def _limit(document: Mapping[str, Any]) -> str:
    return span(document["deadline_seconds"]) if document["deadline_seconds"] else "none"


def _dependencies(document: Any) -> Lines:
    yield Rows([each | {"deadline": _limit(each["timeouts"])} for each in document["items"]], _DEPENDENCIES)


def _circuits(document: Any) -> Lines:
    yield _circuit_rows(key for each in document["items"] for key in (each, *each.get("limit_keys", ())))


def _circuit_rows(circuits: Iterable[Mapping[str, Any]]) -> Rows:
    return Rows(list(circuits), "dependency limit_key? state calls failures failure_ratio:ratio why")


def _circuit(document: Any) -> Lines:
    again = None if document["opened_at"] == document["first_opened_at"] else document["opened_at"]
    counts = "{calls}, {failures} failed, {slow_calls} slow".format_map(document)
    made = {"opened_again_at": again, "counts": counts, "failed_probes": document["failed_probes"] or None}
    keys = document["limits"].get("waiting_by_key", {})
    made["most_waiting"] = ", ".join(f"{key}: {count}" for key, count in keys.items()) or None
    yield facts(document | made, _CIRCUIT)
    if "limit_keys" in document:
        yield ""
        yield _circuit_rows(document["limit_keys"])
    if document["audit"]:
        yield ""
        yield Rows(document["audit"], "at:when action by reason")


def _changed(document: Any) -> Lines:
    deadlines = ", deadlines stop meanwhile" if "stops_deadline" in document["given"] else ""
    text = (
        f"{{dependency}}[ for {{limit_key}}]  {{action}}[ for {{given.for_seconds}}]{deadlines}: {{reason}}"
    )
    yield fill(text, document)
    if "still_held" in document:
        yield f"calls still do not go: {document['still_held']}"


def _health(api: Api, _: Given, screen: Screen) -> int:
    document = api.health()
    screen.show(document, _parts)
    return errors.OK if document["status"] == "healthy" else errors.UNREACHABLE


def _parts(document: Any) -> Lines:
    parts = [
        {"part": name, "state": "works" if part["healthy"] else part["detail"]}
        for name, part in document["parts"].items()
    ]
    yield Rows(parts, "part state")


def _lately(given: Given, _: Screen) -> Given:
    """Return the range; UsageError where it is too long, which the API refuses only from an hour more on."""
    minutes = given.pop("minutes", 60)
    if minutes > _MOST_MINUTES:
        raise UsageError(f"--minutes must be at most {_MOST_MINUTES}, which are seven days")
    begin = clock.now() - timedelta(minutes=minutes)
    return {**given, "from": begin.isoformat().replace("+00:00", "Z")}


def _metrics(document: Any) -> Iterator[Lines]:
    """Yield the table, then those of priorities and of debounce keys, each where there is any."""
    dependencies = document["dependencies"]
    of_keys = " key_openings" if any(each["key_openings"] for each in dependencies) else ""
    yield [Rows(dependencies, _METRICS + of_keys)]
    priorities = [
        {"dependency": each["dependency"], "priority": priority, **counts}
        for each in dependencies
        for priority, counts in each["by_priority"].items()
    ]
    if priorities:
        columns = "dependency priority started:accepted waits.count:waits waits.seconds:waited"
        yield [Rows(priorities, f"{columns} {_OF_OPERATION}")]
    if debounced := [each for each in dependencies if each["debounce_replaced"] or each["debounce_ran"]]:
        yield [Rows(debounced, "dependency debounce_replaced:debounced_away debounce_ran:ran_after_debounce")]


def _policy(given: Given, _: Screen) -> Given:
    if given.keys().isdisjoint(("dependency", "retry")):
        raise UsageError("give --dependency, or --retry, or both")
    return given


def _waits(document: Any) -> Lines:
    waits, total = document["waits"], document["total"]
    rows = [*waits, total | {"after_attempt": "total"}]
    yield Rows(rows, "after_attempt least_seconds expected_seconds most_seconds")
    attempts = span(total["attempts_at_most_seconds"])
    fit = "fits" if document["fits_deadline"] else "does NOT fit"
    yield f"\nattempts take at most {attempts} besides; all of it {fit} the deadline ({_limit(document)})"
    if not document["waits_complete"]:
        yield "only the first waits are listed"
    yield from (f"warning: {warning}" for warning in document.get("warnings", ()))
    if waits:
        yield f"\n{plot_waits(waits)}"


def plot_waits(waits: Sequence[Mapping[str, Any]]) -> str:
    """Draw each wait as a line from its least to its most seconds, with an `o` at the expected value.

    Args:
        waits: At least one, as the API previews them; the first 20 are drawn.
    """
    drawn = waits[:_PLOT_ROWS]
    longest = max(wait["most_seconds"] for wait in drawn) or 1.0
    digits = len(str(drawn[-1]["after_attempt"]))
    lines = [f"{wait['after_attempt']:>{digits}} |{_plot_line(wait, longest)}" for wait in drawn]
    lines += [f"{'':{digits}} +{'-' * (PLOT_WIDTH + 1)}", f"{'':{digits}}  0{span(longest):>{PLOT_WIDTH}}"]
    lines += [f"(and {len(waits) - len(drawn)} more)"] if len(waits) > len(drawn) else []
    return "\n".join(lines)


def _plot_line(wait: Mapping[str, Any], longest: float) -> str:
    least, expected, most = (
        round(wait[f"{name}_seconds"] / longest * PLOT_WIDTH) for name in ("least", "expected", "most")
    )
    letters = [" "] * (PLOT_WIDTH + 1)
    letters[least : most + 1] = "-" * (most + 1 - least)
    letters[least] = letters[most] = "|"
    letters[expected] = "o"
    return "".join(letters).rstrip()


COMMANDS: Final = (
    Command(
        "dependencies",
        "list dependencies and their policies",
        Ask("GET dependencies", "items", _dependencies),
    ),
    Command("health", "show whether the app can accept operations", _health),
    Command(
        "metrics",
        "show attempts, failures, retries, durations and openings of the last minutes "
        f"(60, at most {_MOST_MINUTES})",
        Ask("GET metrics", "dependencies", lambda document: spaced(_metrics(document)), body=_lately),
        "any_dependency minutes",
    ),
    Command(
        "policy preview",
        "show every wait, as a table and a plot",
        Ask("POST policies/preview", "waits", _waits, body=_policy),
        "dependency retry deadline",
    ),
    Command("circuits list", "list circuits", Ask("GET circuits", "items", _circuits)),
    Command(
        "circuits show",
        "show a circuit",
        Ask("GET circuits/{dependency}", "dependency", _circuit),
        "circuit of_key",
    ),
    *(
        Command(
            f"circuits {act}",
            words,
            Ask(f"POST circuits/{{dependency}}/{act}", "dependency", _changed),
            takes,
        )
        for act, words, takes in (
            ("open", "let no attempt through", "circuit of_key why pause"),
            (
                "close",
                "let attempts through and resume waiting operations, but for a pause",
                "circuit of_key why",
            ),
            ("disable", "let every attempt through, whatever fails", "circuit of_key why for_seconds"),
            ("reset", "close it, end its pause and forget its counts", "circuit of_key why"),
        )
    ),
)
