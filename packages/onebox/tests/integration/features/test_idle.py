import os
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support.onebox.process import OneboxProcess

WATCH_SECONDS = 5.5  # longer than the web server, left to itself, keeps an idle connection


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_idle_onebox_uses_under_one_percent_of_a_core_and_keeps_its_connections(
    features: OneboxProcess,
) -> None:
    process = features.server.process
    assert process is not None
    address = features.client.base_url
    connection = HTTPConnection(address.host, address.port)
    connection.connect()
    held = connection.sock
    asked(connection)
    before = processor_seconds(process.pid)
    time.sleep(WATCH_SECONDS)  # nothing is waited for: the quiet itself is measured
    assert processor_seconds(process.pid) - before < 0.01 * WATCH_SECONDS
    asked(connection)
    assert connection.sock is held, "the connection was not made anew"
    connection.close()


def asked(connection: HTTPConnection) -> None:
    connection.request("GET", "/admin/host/ping")
    assert connection.getresponse().read() == b""
