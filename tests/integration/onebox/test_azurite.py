import shutil
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from azure.storage.queue import QueueClient

from onebox.errors import CannotStartError
from onebox.storage import azurite as module
from onebox.storage.azurite import Azurite, StoragePorts, free_ports, ports_from
from tests.integration.onebox.onebox_process import OneboxProcess
from tools.processes import eventually


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[Azurite, StoragePorts]]:
    ports = free_ports()
    azurite = Azurite(tmp_path / "azurite", ports)
    await azurite.start()
    yield azurite, ports
    await azurite.stop()


async def test_it_serves_once_started_and_one_that_answers_is_used_as_it_is(
    running: tuple[Azurite, StoragePorts], tmp_path: Path
) -> None:
    azurite, ports = running
    assert azurite.started
    second = Azurite(tmp_path / "other", ports)
    await second.start()
    assert not second.started
    await second.stop()
    assert ports.all_answer()


async def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    for round_ in range(2):
        azurite = Azurite(tmp_path / "azurite", free_ports())
        await azurite.start()
        with QueueClient.from_connection_string(azurite.ports.connection_string, "kept") as queue:
            if round_ == 0:
                queue.create_queue()
                queue.send_message("kept")
            assert [message.content for message in queue.peek_messages()] == ["kept"]
        await azurite.stop()


async def test_a_port_that_somebody_else_has_is_named(tmp_path: Path) -> None:
    ports = free_ports()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports.queue))
        taken.listen()
        with pytest.raises(CannotStartError, match=f"storage port {ports.queue} is in use"):
            await Azurite(tmp_path / "azurite", ports).start()


async def test_a_missing_node_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(CannotStartError, match="Node 20 or newer is needed"):
        await Azurite(tmp_path / "azurite", free_ports()).start()


async def test_a_missing_azurite_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUNDLED", tmp_path / "none")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(CannotStartError, match="Azurite is not installed"):
        await Azurite(tmp_path / "azurite", free_ports()).start()


def test_ports_are_the_well_known_ones_unless_settings_differ() -> None:
    assert ports_from({}) == StoragePorts(10000, 10001, 10002)
    assert ports_from({"AZURITE_QUEUE_PORT": "1"}) == StoragePorts(10000, 1, 10002)
    with pytest.raises(CannotStartError, match="must be a number"):
        ports_from({"AZURITE_BLOB_PORT": "x"})


def test_it_ends_with_a_onebox_that_is_killed(own_onebox: OneboxProcess) -> None:
    assert own_onebox.ports.all_answer()
    own_onebox.server.kill()
    eventually(lambda: not own_onebox.ports.taken(), "the ports are free", within_seconds=15)
