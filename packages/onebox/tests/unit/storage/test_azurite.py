"""The storage emulator that does not start again."""

import asyncio
from pathlib import Path

import pytest

from onebox import CannotStartError
from onebox.storage.azurite import Azurite
from scripts.processes import free_storage_ports


@pytest.mark.shows("R5")
async def test_one_that_cannot_be_started_again_is_tried_after_longer_pauses_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()
    sleep = asyncio.sleep

    async def note_pause(seconds: float) -> None:
        pauses.append(round(seconds, 3))
        if len(pauses) == 11:
            enough.set()
        await sleep(0)

    async def fail(_: Azurite) -> None:
        raise CannotStartError("a storage port is in use")

    monkeypatch.setattr(asyncio, "sleep", note_pause)
    monkeypatch.setattr(Azurite, "_start", fail)
    azurite = Azurite(tmp_path, free_storage_ports())
    azurite.trouble = "the storage emulator ended"
    keeping = asyncio.create_task(azurite._keep(None))
    await enough.wait()
    keeping.cancel()
    await asyncio.wait([keeping])
    assert pauses[:11] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    assert azurite.trouble == "the storage emulator does not start: a storage port is in use"
