from pathlib import Path

import pytest

from onebox import CannotStartError
from onebox.data_folder import DataFolder, write_private
from onebox.hub.hub import HubLock


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_and_its_files_are_its_owners_alone(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "a" / "data")
    data.take()
    assert mode(data.path) == 0o700
    assert mode(data.azurite) == 0o700
    assert {mode(path) for path in (data.hub, data.path / "lock")} == {0o600}
    write_private(data.timers, "{}")
    assert mode(data.timers) == 0o600
    data.release()


def test_a_folder_that_others_could_read_is_closed(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data")
    data.path.mkdir(mode=0o755)
    data.timers.write_text("{}")
    data.timers.chmod(0o644)
    data.take()
    assert (mode(data.path), mode(data.timers)) == (0o700, 0o600)
    data.release()


def test_a_folder_with_other_files_keeps_its_mode(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    other.chmod(0o644)
    data = DataFolder(tmp_path)
    data.take()
    assert (mode(tmp_path), mode(other), mode(data.hub)) == (0o755, 0o644, 0o600)
    assert "holds other files too" in caplog.text
    data.release()


def test_a_store_that_is_gone_is_spoken_of_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = DataFolder(tmp_path)
    data.take()
    assert caplog.text == ""
    lock = HubLock(data.hub)
    lock.acquire()
    lock.release()
    data.release()
    data.hub.unlink()
    data.take()
    assert "hub.sqlite is gone since this folder was last used" in caplog.text
    data.release()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    first, second = DataFolder(tmp_path), DataFolder(tmp_path)
    first.take()
    with pytest.raises(CannotStartError, match="another onebox uses"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(CannotStartError, match=r"file is a file; choose a folder with --data"):
        DataFolder(path).take()


def test_a_private_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_private(path, "first")
    write_private(path, "second")
    assert path.read_text() == "second"
    assert list(tmp_path.iterdir()) == [path]


def test_a_socket_whose_path_is_too_long_lies_in_a_private_folder(tmp_path: Path) -> None:
    near, far = DataFolder(tmp_path / "d"), DataFolder(tmp_path / ("d" * 100))
    assert near.socket == tmp_path / "d" / "hub.sock"
    folder = far.socket.parent
    assert far.socket.parent == folder
    assert len(str(far.socket)) < 100
    assert mode(folder) == 0o700
    far.release()
    assert not folder.exists()
