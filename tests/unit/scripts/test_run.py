import socket
import subprocess
import sys

import pytest

from scripts.run import CannotRunError, build_parser, parts, port_in_use, require_free, watch


def test_the_defaults_are_the_ports_of_the_contract() -> None:
    arguments = build_parser().parse_args([])
    assert (arguments.port, arguments.target_port, arguments.data) == (7071, 7072, ".onebox")


def test_onebox_watches_the_files_when_it_is_asked_to() -> None:
    assert "--reload" not in parts(build_parser().parse_args([]))[1].command
    assert "--reload" in parts(build_parser().parse_args(["--reload"]))[1].command


def test_both_parts_are_started_on_loopback_with_their_ports() -> None:
    target, onebox = parts(
        build_parser().parse_args(["--port", "8001", "--target-port", "8002", "--data", "there"])
    )
    assert target.command[1:] == ["-m", "examples.flaky_target", "--port", "8002"]
    assert onebox.command[1:] == [
        *["-m", "onebox", "start", "--host", "127.0.0.1"],
        *["--port", "8001", "--data", "there", "--storage-ports", "auto"],
    ]
    assert onebox.ready_url == "http://127.0.0.1:8001/admin/host/status"


def test_a_taken_port_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            CannotRunError, match=f'port {port} is in use.*make run ARGS="--port {port + 10}"'
        ):
            require_free({"--port": port})
    assert not port_in_use(port)


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("sys.exit(3)", r"^onebox ended by itself with exit code 3; its last lines above say why$"),
        ("os.kill(os.getpid(), signal.SIGKILL)", r"^onebox was killed by SIGKILL; start it again$"),
    ],
)
def test_a_part_that_was_killed_is_not_said_to_have_ended_by_itself(ending: str, said: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", f"import os, signal, sys; {ending}"])
    process.wait()
    with pytest.raises(CannotRunError, match=said):
        watch({"onebox": process})
