import asyncio
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.storage.queue import QueueClient

from onebox import CannotStartError
from onebox.data_folder import DataFolder
from onebox.environment import STORAGE
from onebox.storage import installation
from onebox.storage.account import open_account
from onebox.storage.azurite import ACCOUNT_KEY, Azurite, PortChoice
from onebox.storage.ports import StoragePorts, key_from, ports_from
from scripts.processes import PLAIN_HTTP, eventually, free_storage_ports
from tests.support.onebox.process import OneboxProcess


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[Azurite, StoragePorts]]:
    ports = free_storage_ports()
    azurite = Azurite(tmp_path / "azurite", ports)
    await azurite.start()
    yield azurite, ports
    await azurite.stop()


def data_folder(path: Path) -> DataFolder:
    folder = DataFolder(path)
    folder.azurite.mkdir(parents=True, exist_ok=True)
    return folder


def environment(ports: StoragePorts | None = None) -> dict[str, str]:
    """App settings that ask for development storage, with preferred ports if given."""
    environ = {STORAGE.name: "UseDevelopmentStorage=true"}
    if ports is not None:
        names = ("AZURITE_BLOB_PORT", "AZURITE_QUEUE_PORT", "AZURITE_TABLE_PORT")
        environ |= dict(zip(names, map(str, (ports.blob, ports.queue, ports.table)), strict=True))
    return environ


@pytest.mark.long
async def test_a_second_data_folder_has_storage_of_its_own(
    running: tuple[Azurite, StoragePorts], tmp_path: Path
) -> None:
    azurite, ports = running
    second = Azurite(tmp_path / "other", ports, PortChoice.AUTO)
    await second.start()
    try:
        taken = {ports.blob, ports.queue, ports.table}
        assert not taken & {second.ports.blob, second.ports.queue, second.ports.table}
        with QueueClient.from_connection_string(azurite.connection_string, "mine") as mine:
            mine.create_queue()
            mine.send_message("mine")
        with QueueClient.from_connection_string(second.connection_string, "mine") as other:
            other.create_queue()
            assert other.peek_messages() == []
    finally:
        await second.stop()
    assert ports.all_answer()


async def test_only_the_key_that_the_data_folder_keeps_opens_the_account(tmp_path: Path) -> None:
    folder = data_folder(tmp_path)
    environ = environment(free_storage_ports()) | {"MoreStorage": "UseDevelopmentStorage=true;", "Name": "x"}
    account = await open_account(environ, folder, PortChoice.FIXED, join=False)
    assert account.emulator is not None
    try:
        ports, key = account.emulator.ports, folder.azurite / ACCOUNT_KEY
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert environ[STORAGE.name] == environ["MoreStorage"] == ports.connection_with(key.read_text())
        assert environ["Name"] == "x"
        assert folder.storage_connection.read_text() == environ[STORAGE.name]
        assert stat.S_IMODE(folder.storage_connection.stat().st_mode) == 0o600
        with QueueClient.from_connection_string(environ[STORAGE.name], "mine") as mine:
            mine.create_queue()
        with (
            QueueClient.from_connection_string(ports.connection_string, "mine", retry_total=0) as known,
            pytest.raises(ClientAuthenticationError),
        ):
            known.send_message("from a page that knows the well-known key")
        asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
        async with httpx.AsyncClient(headers=asked, verify=PLAIN_HTTP) as page:
            for url in ports.endpoints.values():
                answer = await page.options(f"{url}/mine/messages")
                assert answer.status_code == 403
                assert not [name for name in answer.headers if name.startswith("access-control")]
    finally:
        await account.stop()
    again = Azurite(folder.azurite, free_storage_ports())
    await again.start()
    await again.stop()
    assert again.key == key.read_text()


@pytest.mark.long
async def test_storage_that_runs_is_joined_when_asked_for_and_said_aloud(
    running: tuple[Azurite, StoragePorts], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    azurite, ports = running
    environ = environment(ports)
    with pytest.raises(CannotStartError, match="refuses the key"):
        await open_account(environ, data_folder(tmp_path / "other"), PortChoice.AUTO, join=True)
    environ["AZURITE_ACCOUNTS"] = f"devstoreaccount1:{azurite.key}"
    account = await open_account(environ, data_folder(tmp_path / "other"), PortChoice.AUTO, join=True)
    assert account.kind == "joined"
    assert account.described == {"kind": "joined", **ports.endpoints}
    assert environ[STORAGE.name] == azurite.connection_string
    assert (tmp_path / "other" / "storage-connection-string").read_text() == azurite.connection_string
    assert f"joined the storage emulator on ports {ports}" in caplog.text
    await account.stop()
    assert ports.all_answer()


async def test_there_must_be_storage_to_join(tmp_path: Path) -> None:
    with pytest.raises(CannotStartError, match="no storage emulator to join on ports"):
        await open_account(
            environment(free_storage_ports()), data_folder(tmp_path), PortChoice.AUTO, join=True
        )


async def test_an_external_account_starts_nothing(tmp_path: Path) -> None:
    environ = {STORAGE.name: "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=secret"}
    folder = data_folder(tmp_path)
    folder.storage_connection.write_text("of the emulator that it had before")
    account = await open_account(environ, folder, PortChoice.AUTO, join=False)
    assert account.described == {"kind": "external"}
    assert not folder.storage_connection.exists()
    assert list(folder.azurite.iterdir()) == []


@pytest.mark.long
async def test_ports_that_are_set_are_taken_or_nothing_is(
    running: tuple[Azurite, StoragePorts], tmp_path: Path
) -> None:
    _, ports = running
    with pytest.raises(CannotStartError, match=f"storage port {ports.blob} is in use"):
        await open_account(environment(ports), data_folder(tmp_path / "other"), PortChoice.AUTO, join=False)


@pytest.mark.long
async def test_of_two_that_want_the_same_free_ports_each_gets_its_own(tmp_path: Path) -> None:
    ports = free_storage_ports()
    both = [Azurite(tmp_path / name, ports, PortChoice.AUTO) for name in ("one", "two")]
    await asyncio.gather(*(each.start() for each in both))
    try:
        assert len({number for each in both for number in each.ports.endpoints.values()}) == 6
        assert all(each.ports.all_answer() for each in both)
    finally:
        await asyncio.gather(*(each.stop() for each in both))


@pytest.mark.long
async def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    for round_ in range(2):
        azurite = Azurite(tmp_path / "azurite", free_storage_ports())
        await azurite.start()
        with QueueClient.from_connection_string(azurite.connection_string, "kept") as queue:
            if round_ == 0:
                queue.create_queue()
                queue.send_message("kept")
            assert [message.content for message in queue.peek_messages()] == ["kept"]
        await azurite.stop()


async def test_a_port_that_somebody_else_has_is_named(tmp_path: Path) -> None:
    ports = free_storage_ports()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports.queue))
        taken.listen()
        with pytest.raises(CannotStartError, match=f"storage port {ports.queue} is in use"):
            await Azurite(tmp_path / "azurite", ports).start()


async def test_a_missing_node_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(installation, "_node_wheel", lambda: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(CannotStartError, match="Node 20 or newer is needed"):
        await Azurite(tmp_path / "azurite", free_storage_ports()).start()


async def test_an_installation_without_npm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "BUNDLED", tmp_path / "none")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(installation, "find_node", lambda: str(tmp_path / "bin" / "node"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(CannotStartError, match="npm is needed for the storage emulator"):
        await Azurite(tmp_path / "azurite", free_storage_ports()).start()


async def test_an_azurite_on_path_refuses_what_it_could_not_send_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = tmp_path / "azurite"
    on_path.symlink_to(installation.BUNDLED)
    monkeypatch.setattr(installation, "BUNDLED", tmp_path / "none")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    azurite = Azurite(tmp_path / "data", free_storage_ports())
    await azurite.start()
    try:
        queue = QueueClient.from_connection_string(azurite.connection_string, "characters")
        await asyncio.to_thread(queue.create_queue)
        with pytest.raises(HttpResponseError, match="XML specified is not syntactically valid"):
            await asyncio.to_thread(queue.send_message, "a\0b")
    finally:
        await azurite.stop()


def test_azurite_starts_without_the_telemetry_that_it_does_not_send(tmp_path: Path) -> None:
    probe = tmp_path / "probe.cjs"
    probe.write_text('process.on("exit", () => console.log(Object.keys(require.cache).join("\\n")))')
    command = [*installation.azurite_command({}), "--version"]
    environ = os.environ | {"NODE_OPTIONS": f"--require {probe}"}
    asked = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
    assert "/lokijs/" in asked.stdout
    assert "/@opentelemetry/" not in asked.stdout


def test_a_program_on_path_that_is_no_file_of_node_is_run_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "BUNDLED", tmp_path / "none")
    monkeypatch.setattr(shutil, "which", lambda _: str(tmp_path / "azurite"))
    assert installation.azurite_command({}) == [str(tmp_path / "azurite")]


NPM = """#!/bin/sh
mkdir -p node_modules/azurite/dist/src
touch node_modules/azurite/package.json node_modules/azurite/dist/src/azurite.js
until [ -e go ]; do sleep 0.01; done
"""


def test_an_installation_says_what_it_does_and_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "npm").write_text(NPM)
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setattr(installation, "BUNDLED", tmp_path / "none")
    monkeypatch.setattr(installation, "_REPORT_SECONDS", 0.05)
    monkeypatch.setattr(installation, "find_node", lambda: "node")
    monkeypatch.setattr(shutil, "which", lambda name: str(tmp_path / "npm") if name == "npm" else None)
    caplog.set_level("INFO", "onebox")
    with ThreadPoolExecutor(1) as pool:
        command = pool.submit(installation.azurite_command, {"XDG_CACHE_HOME": str(tmp_path)})
        eventually(lambda: re.search(r"installing Azurite: 1 of \d{3} packages", caplog.text), "it reports")
        (unfinished,) = (tmp_path / "onebox").glob("*.new")
        (unfinished / "go").touch()
        assert Path(command.result()[-1]).is_file()
    assert re.search(r"with npm into \S+: \d{3} packages, 365 MB, once for all apps", caplog.messages[0])


def test_ports_are_the_well_known_ones_unless_settings_differ() -> None:
    assert ports_from({}) == StoragePorts(10000, 10001, 10002)
    assert ports_from({"AZURITE_QUEUE_PORT": "1"}) == StoragePorts(10000, 1, 10002)
    for text in ("x", "0", "65536"):
        with pytest.raises(CannotStartError, match="AZURITE_BLOB_PORT must be a number from 1 to 65535"):
            ports_from({"AZURITE_BLOB_PORT": text})


def test_a_key_that_is_set_is_taken_and_one_for_another_account_is_no_key() -> None:
    assert key_from({}) is None
    assert key_from({"AZURITE_ACCOUNTS": "other:b;devstoreaccount1:a2V5:c"}) == "a2V5"
    for text in ("other:b", "devstoreaccount1", "devstoreaccount1:", "devstoreaccount1:!!!"):
        with pytest.raises(CannotStartError, match="AZURITE_ACCOUNTS must be devstoreaccount1:KEY"):
            key_from({"AZURITE_ACCOUNTS": text})


@pytest.mark.long
def test_one_that_dies_is_started_again_and_the_status_says_so_meanwhile(own_onebox: OneboxProcess) -> None:
    listed = subprocess.run(
        [shutil.which("pgrep") or "pgrep", "-f", f"azurite.js --location {own_onebox.data}"],
        capture_output=True,
        text=True,
        check=True,
    )
    for pid in map(int, listed.stdout.split()):
        os.kill(pid, signal.SIGKILL)

    def status() -> dict[str, Any]:
        answer: dict[str, Any] = own_onebox.client.get("/admin/host/status").json()
        return answer

    def ended() -> bool:
        shown = status()
        return shown["state"] == "Error" and "the storage emulator" in shown["errors"][0]

    eventually(ended, "the status says that storage is away")
    eventually(lambda: status()["state"] == "Running", "storage is there again")
    own_onebox.raw_queue("served").send_message("served")
    began = time.monotonic()
    assert own_onebox.server.stop() == 0
    assert time.monotonic() - began < 8  # below the last resort: no thread still waits for storage


@pytest.mark.long
def test_it_ends_with_a_onebox_that_is_killed(own_onebox: OneboxProcess) -> None:
    assert own_onebox.ports.all_answer()
    own_onebox.server.kill()
    eventually(lambda: not own_onebox.ports.taken(), "the ports are free")
