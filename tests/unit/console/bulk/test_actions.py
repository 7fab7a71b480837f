"""How many operations a bulk action would meet."""

import pytest

from durable_retry import clock
from durable_retry.console.bulk.actions import count_matches
from durable_retry.console.bulk.shapes import UnfinishedFilter
from durable_retry.stores.task_hub import InstancePage, TaskHub


class Pages:
    """A task hub whose pages have nothing, and a clock that each page moves on by four seconds."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.seconds = 0.0

    async def next(self, *_: object) -> InstancePage:
        self.left, self.seconds = self.left - 1, self.seconds + 4
        return InstancePage([], "more" if self.left else None)


@pytest.mark.parametrize(("pages", "is_complete"), [(2, True), (3, True), (4, False)])
async def test_operations_are_counted_for_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, pages: int, *, is_complete: bool
) -> None:
    hub = Pages(pages)
    monkeypatch.setattr(TaskHub, "instance_page", hub.next)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: hub.seconds)
    assert await count_matches(TaskHub("hub"), UnfinishedFilter(), ()) == (0, is_complete)
