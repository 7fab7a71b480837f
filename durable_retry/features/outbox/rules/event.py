"""A follow-up message, as handlers and submissions give it."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Self

from pydantic import model_validator

from durable_retry.base.foreign import plain_json
from durable_retry.base.validation import (
    InvalidInputError,
    Label,
    Matching,
    Problem,
    RelativePath,
    ResourceName,
    Strict,
    refuse,
    validated,
)
from durable_retry.rules.config.dependency import Targets

MAX_QUEUE_DATA_BYTES: Final = 61_440
"""A storage queue takes messages of 64 KiB; the rest is for the envelope."""

MAX_WEBHOOK_DATA_BYTES: Final = 262_144
"""Half of a row, which has 1 MiB in two bytes a character: notes of attempts are added to it."""


type QueueName = Annotated[
    str,
    Matching(
        r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*",
        "must be a storage queue's name: 3 to 63 lower-case letters, digits and single inner hyphens",
    ),
]


class Event(Strict):
    """A follow-up message: to a storage `queue`, or to `dependency` + `path` as a webhook.

        Event.to_queue("order-events", "order.placed", {"order": 7})

    Attributes:
        type: What happened, e.g. `order.placed`.
        queue: Name of a storage queue.
        dependency: The receiver of a webhook.
        path: Below its base URL.
        data: Any JSON.
    """

    type: Label
    queue: QueueName | None = None
    dependency: ResourceName | None = None
    path: RelativePath | None = None
    data: Any = None

    @classmethod
    def to_queue(cls, queue: str, event_type: str, data: Any = None) -> Self:
        """Return a message to a storage queue, checked.

            Event.to_queue("order-events", "order.placed", {"order": 7})

        Args:
            queue: Its name; it is created when missing.
            event_type: What happened; becomes the event's `type`.
            data: Any JSON; models and dataclasses become JSON. With it the message has at most 64 KiB.

        Raises:
            InvalidInputError: Each field that is wrong, with its cause.
        """
        target = {"queue": queue, "type": event_type}
        return cls._checked_event(target, data, "a message to a queue", MAX_QUEUE_DATA_BYTES)

    @classmethod
    def to_webhook(cls, dependency: str, path: str, event_type: str, data: Any = None) -> Self:
        """Return a webhook, checked.

            Event.to_webhook("crm", "/hooks/orders", "order.placed", {"order": 7})

        Args:
            dependency: The receiver, a name in `dependencies.toml`.
            path: Below its base URL.
            event_type: What happened; becomes the event's `type`.
            data: Any JSON, at most 256 KiB; models and dataclasses become JSON.

        Raises:
            InvalidInputError: Each field that is wrong, with its cause.
        """
        target = {"dependency": dependency, "path": path, "type": event_type}
        return cls._checked_event(target, data, "a webhook", MAX_WEBHOOK_DATA_BYTES)

    @classmethod
    def _checked_event(cls, target: Mapping[str, Any], data: Any, receiver: str, most_bytes: int) -> Self:
        event = validated(cls, {**target, "data": plain_json(data, "/data")})
        size = len(json.dumps(event.data))
        if size > most_bytes:
            raise InvalidInputError([Problem("/data", f"has {size} bytes; {receiver} takes {most_bytes}")])
        return event

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        webhook = self.dependency is not None or self.path is not None
        if webhook == (self.queue is not None):
            raise refuse("needs either queue, or dependency and path")
        if webhook and (self.dependency is None or self.path is None):
            raise refuse("needs both dependency and path for a webhook")
        return self

    def unmet(self, pointer: str, targets: Targets) -> Iterator[Problem]:
        """Check where it goes: a dependency that has a URL, or a queue that is not the platform's."""
        if self.dependency is not None:
            receiver = targets.find_dependency(self.dependency)
            if receiver is None:
                yield Problem(f"{pointer}/dependency", f"no dependency has the name {self.dependency}")
            elif not receiver.base_url:
                detail = f"{self.dependency} has no base_url to send a webhook to"
                yield Problem(f"{pointer}/dependency", detail)
        # A message of a caller's there would be taken for one of the platform's own.
        if self.queue is not None and self.queue.startswith(targets.platform_queues):
            detail = "belongs to the task hub or the host: nobody else may send to it"
            yield Problem(f"{pointer}/queue", detail)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without the target that was not given."""
        return self.model_dump(exclude_none=True) | {"data": self.data}
