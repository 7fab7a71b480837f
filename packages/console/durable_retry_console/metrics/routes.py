"""HTTP: metrics of dependencies over time."""

from datetime import UTC, datetime, timedelta
from typing import Final

from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.http.parameters import instant, text
from durable_retry.http.routes import Query, Routes
from durable_retry.runtime import clock
from durable_retry.settings.configuration import dependencies, present_name
from durable_retry.telemetry.spans import QUEUE
from durable_retry_console.metrics.document import MetricsDocument
from durable_retry_console.metrics.series import LONGEST_RANGE, SHORTEST_RANGE, metrics_between

routes = Routes("metrics")

_DEFAULT_RANGE: Final = timedelta(hours=1)
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""There are no metrics before it, and an hour before the year 1 is no instant."""


DEPENDENCY: Final = text(
    "dependency", "A name in `dependencies.toml`, or `queue` for events to queues; every one when missing."
)
FROM: Final = instant("from", "Start of the range; an hour before its end when missing.")
TO: Final = instant("to", "End of the range, exclusive; now when missing.")


@routes.get("metrics", parameters=(DEPENDENCY, FROM, TO))
async def get_metrics(query: Query) -> MetricsDocument:
    """Show attempts, failures, retries, durations and waits over time.

    A range is a minute to seven days long and is answered in at most 180 steps.
    """
    now = clock.now()
    end = query[TO] or now
    if end < _EARLIEST:
        raise InvalidInputError([Problem("/to", "must not be before 1970")])
    begin = query[FROM] or end - _DEFAULT_RANGE
    problems = []
    if not SHORTEST_RANGE <= end - begin <= LONGEST_RANGE:
        problems.append(Problem("/from", "must be a minute to seven days before `to`"))
    known = [*sorted(dependencies().dependencies), QUEUE]
    name = query[DEPENDENCY]
    wanted = None if name is None else present_name(name)
    if wanted is not None and wanted not in known:
        problems.append(Problem("/dependency", f"must be one of {', '.join(known)}"))
    if problems:
        raise InvalidInputError(problems)
    return await metrics_between([wanted] if wanted else known, begin, end)
