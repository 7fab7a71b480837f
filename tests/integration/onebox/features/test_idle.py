import os
import sys
import time
from pathlib import Path

import pytest

from tests.integration.onebox.onebox_process import OneboxProcess

WATCH_SECONDS = 4.0


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_idle_onebox_uses_under_one_percent_of_a_core(features: OneboxProcess) -> None:
    process = features.server.process
    assert process is not None
    before = processor_seconds(process.pid)
    time.sleep(WATCH_SECONDS)  # nothing is waited for: the quiet itself is measured
    assert processor_seconds(process.pid) - before < 0.01 * WATCH_SECONDS
