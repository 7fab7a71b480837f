"""An entry of the activity, and questions about it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, left_out
from durable_retry.base.text import mentions
from durable_retry.rules.facts import TargetType
from durable_retry_console.states import is_of


class ActivityKind(StrEnum):
    """What an entry is about."""

    ACTION = "action"
    """Somebody acted on one operation, dead letter, event or circuit."""
    BULK = "bulk"
    """Somebody began or cancelled a bulk action."""
    CIRCUIT = "circuit"
    """An outage, until every call goes through again; or a pause that a dependency asked for."""
    DEPLOYMENT = "deployment"
    """Other code runs than before."""
    SETTINGS = "settings"
    """Settings or dependencies differ from those before."""


class ActivityTarget(Answer):
    """What an entry is about."""

    type: TargetType
    id: str
    url: str | None = Field(description="Its path in the API; null where it has no page.")


class ActivityItem(Answer):
    """Something that happened."""

    at: Instant
    until: Instant | None = Field(
        default=None,
        description="End of an outage, null while it goes on; of a pause, known from its begin.",
    )
    kind: ActivityKind
    who: str | None = Field(
        description="A person or a key, `api` where it has no name; null where nobody acted."
    )
    what: str = Field(description="For a person, such as `archived the dead letter`.")
    target: ActivityTarget
    reason: str | None = None
    dependency: str | None = None
    limit_key: str | None = left_out("Whose circuit it is. Left out for a dependency's own.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityFilter:
    """Conditions on entries; None means any."""

    kind: ActivityKind | None = None
    who: str | None = None
    dependency: str | None = None
    words: str | None = None  # each must stand in who, what, the reason, the target's id or the dependency
    after: datetime | None = None  # at this instant or later
    before: datetime | None = None  # before this instant

    def matches(self, item: ActivityItem) -> bool:
        """Return whether an entry matches, whenever it happened."""
        exact = self.kind in (None, item.kind) and self.who in (None, item.who)
        texts = (item.who, item.what, item.reason, item.target.id, item.dependency)
        is_named = self.words is None or mentions(self.words, *texts)
        return exact and is_named and is_of(self.dependency, item.dependency)
