"""HTTP: what happened, and who did it."""

from typing import Final

from durable_retry.base.answers import Page
from durable_retry.http.parameters import LIMIT, instant, one_of, row_cursor, text
from durable_retry.http.routes import Query, Routes, page
from durable_retry_console.activity.find import find_activity
from durable_retry_console.activity.shapes import ActivityFilter, ActivityItem, ActivityKind

routes = Routes("activity")

WHO: Final = text("who", "Only what this person or key did.")
KIND: Final = one_of("kind", ActivityKind, "Only entries of this kind.")
DEPENDENCY: Final = text("dependency", "Only of this dependency.")
WORDS: Final = text("q", "Each word stands in who, what, the reason, the target's id or the dependency.")
AFTER: Final = instant("after", "At this instant or later.")
CURSOR: Final = row_cursor(r"[0-9]{17}-[0-9a-f]{8}")
BEFORE: Final = instant("before", "Before this instant.")


@routes.get(
    "activity",
    parameters=(WHO, KIND, DEPENDENCY, WORDS, AFTER, BEFORE, LIMIT, CURSOR),
    answers=page(Page[ActivityItem], "a bounded number of entries"),
)
async def get_activity(query: Query) -> Page[ActivityItem]:
    """List what people did and what happened: outages, bulk actions, deployments, settings."""
    wanted = query.into(ActivityFilter, words=query[WORDS])
    return await find_activity(wanted, query[LIMIT], query[CURSOR])
