from types import TracebackType
from typing import Self

import pytest
from azure.core.pipeline import Pipeline
from azure.core.pipeline.transport import HttpRequest, HttpTransport

from bench.storage import measured, sent_rows


class Nowhere(HttpTransport[HttpRequest, None]):
    """Takes requests and sends none."""

    def send(self, request: HttpRequest, **_: object) -> None:
        del request

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        pass


@pytest.mark.parametrize("rounds", [1, 3])
async def test_requests_are_those_of_one_round(rounds: int) -> None:
    pipeline = Pipeline[HttpRequest, None](Nowhere())
    done: list[int] = []

    async def act() -> None:
        done.append(len(done))
        for _ in range(4):
            pipeline.run(HttpRequest("GET", "http://127.0.0.1"))

    found = await measured(act, rounds)
    assert (found.requests, len(done)) == (4, rounds)
    assert found.seconds >= 0


def test_every_event_that_was_sent_has_a_row_of_its_own() -> None:
    rows = [*sent_rows(0, 150), *sent_rows(150, 300)]
    assert {row["PartitionKey"].partition("-")[0] for row in rows} == {"sent"}
    assert len({row["RowKey"] for row in rows}) == 300


def test_an_older_event_comes_behind_a_newer_one() -> None:
    keys = [row["RowKey"] for row in sent_rows(0, 50)]
    assert keys == sorted(keys)
