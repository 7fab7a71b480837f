"""The packing of what has ended, when it fails."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from onebox.hub.archive import Archiver
from onebox.hub.writer import Writer


class HealthyOutage:
    is_lasting = False


class IdleWriter:
    outage = HealthyOutage()


@pytest.mark.shows("R4")
async def test_packing_that_fails_rests_for_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    slept = asyncio.Queue[None]()
    sleep = asyncio.sleep

    async def note_rest(seconds: float) -> None:
        rests.append(seconds)
        slept.put_nowait(None)
        await sleep(0)

    def fail(*_: Any) -> Iterator[tuple[Any, ...]]:
        raise RuntimeError("a kind that nobody foresaw")

    monkeypatch.setattr(asyncio, "sleep", note_rest)
    archiver = Archiver(fail, cast("Writer", IdleWriter()), rest_seconds=0.5)
    archiver.start()
    for _ in range(12):
        await slept.get()
        archiver.note()
    await archiver.close()
    assert rests[:12] == [0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
