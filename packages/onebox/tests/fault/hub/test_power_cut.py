"""A power cut: the disk has what was synced, and by chance some of what was not. Nothing accepted is lost.

A library that is preloaded into each life records what it writes and syncs (`record_writes.c`). After its
death its files are made anew: per file, all up to its last sync, and each later write with one chance in two.
"""

import os
import random
import shutil
import signal
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.long_checks import SAMPLE_SEED
from tests.support.onebox.hub_lives import SEED, accepted_in, check, live

COMPILER = shutil.which("cc")
MOST_CUTS = 30
CUTS = 5 if SAMPLE_SEED in os.environ else MOST_CUTS
"""The fewest; a sample goes on until a cut has lost something."""

MOST_STEPS = 250
"""A life has some more than that before it has nothing to do."""

FILES = ("hub.db", "hub.db-wal")
HEAD = struct.Struct("<cbqq")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        COMPILER is None or os.uname().sysname != "Linux", reason="needs Linux and a C compiler"
    ),
]


@dataclass(frozen=True, slots=True)
class Step:
    """One record: W writes bytes at an offset, T cuts to a length (the offset), S syncs."""

    kind: bytes
    file: int
    offset: int
    data: bytes


def steps_in(record: bytes) -> list[Step]:
    """Read a record; its last step may be cut off by the death."""
    steps, at = [], 0
    while at + HEAD.size <= len(record):
        kind, file, offset, size = HEAD.unpack_from(record, at)
        at += HEAD.size
        if at + size > len(record):
            break
        steps.append(Step(kind, file, offset, record[at : at + size]))
        at += size
    return steps


def after_the_cut(before: bytes, steps: list[Step], draws: random.Random) -> bytes:
    """Return what is left of a file."""
    content = bytearray(before)
    synced = max((number for number, step in enumerate(steps) if step.kind == b"S"), default=-1)
    for number, step in enumerate(steps):
        if step.kind == b"S" or (number > synced and draws.random() < 0.5):
            continue
        end = step.offset + len(step.data)
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        if step.kind == b"W":
            content[step.offset : end] = step.data
        else:
            del content[step.offset :]
    return bytes(content)


def test_what_is_not_synced_may_be_lost() -> None:
    steps = [Step(b"W", 0, 0, b"abcd"), Step(b"S", 0, 0, b""), Step(b"W", 0, 2, b"XY"), Step(b"T", 0, 1, b"")]
    left = {after_the_cut(b"", steps, random.Random(seed)) for seed in range(50)}  # noqa: S311 - chance that a seed gives again
    assert left == {b"abcd", b"abXY", b"a"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What records the writes of a process."""
    built = tmp_path_factory.mktemp("library") / "record_writes.so"
    source = Path(__file__).with_name("record_writes.c")
    assert COMPILER is not None
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-O1", "-o", built, source, "-ldl", "-lpthread"], check=True
    )
    return built


async def test_all_that_is_written_is_recorded(tmp_path: Path, library: Path) -> None:
    env = {"LD_PRELOAD": str(library), "RECORD": str(tmp_path / "record"), "CHECKPOINT_PAGES": "40"}
    code, _ = await live(tmp_path, 0, **env)
    assert code == 0
    steps = [step for step in steps_in((tmp_path / "record").read_bytes()) if step.file == 0]
    synced = [*steps, Step(b"S", 0, 0, b"")]
    assert (tmp_path / "hub.db").read_bytes() == after_the_cut(b"", synced, random.Random(0))  # noqa: S311 - draws nothing


@pytest.mark.timeout(40 * MOST_CUTS)
async def test_nothing_accepted_is_lost_in_a_power_cut(tmp_path: Path, library: Path) -> None:
    draws = random.Random(SEED)  # noqa: S311 - instants and losses that a seed gives again
    accepted: list[str] = []
    life = lost = 0
    while life < CUTS or (not lost and life < MOST_CUTS):
        record = tmp_path / f"record-{life}"
        before = {name: path.read_bytes() if (path := tmp_path / name).exists() else b"" for name in FILES}
        env = {"LD_PRELOAD": str(library), "RECORD": str(record), "CHECKPOINT_PAGES": "40"}
        env["DIE_AFTER"] = str(draws.randint(1, MOST_STEPS))
        code, lines = await live(tmp_path, life, "wait", **env)
        assert code == -signal.SIGKILL
        accepted += accepted_in(lines)
        steps = steps_in(record.read_bytes())
        for number, name in enumerate(FILES):
            path = tmp_path / name
            there = path.read_bytes() if path.exists() else b""
            mine = [step for step in steps if step.file == number]
            path.write_bytes(left := after_the_cut(before[name], mine, draws))
            lost += left != there
        (tmp_path / "hub.db-shm").unlink(missing_ok=True)  # memory of the machine that lost its power
        life += 1
    assert accepted, "each life died before it accepted anything"
    assert lost, "no cut lost anything"
    await check(tmp_path, accepted, life)
