"""Packs what has ended: history, input, output and custom status of an instance in one row.

While an instance runs, each is a row or a column of its own, quick to write. Its input and output stand in
its history once more, so together they shrink to a quarter. Within seconds after its end an instance is
packed, in the background. What needs its rows again puts them back (`restore`); readers see no difference.
"""

import asyncio
import itertools
import logging
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from onebox.hub.database import Transaction
from onebox.hub.events import unpacked
from onebox.hub.outage import is_damage
from onebox.hub.writer import Writer

_LENGTHS: Final = struct.Struct("<4i")  # of the four parts, in bytes; -1 = the part is not there
_ABSENT = -1
_ZLIB_LEVEL = 3  # 6 per cent more bytes than by 6, and two thirds of the time
_LEAST_WINDOW_BITS = 9
_MOST_INSTANCES = 32  # of one transaction: bounds how long the event loop runs statements without a break
_MOST_BYTES = 4_000_000  # likewise; one instance may have more
_LONG_STATE_CHARACTERS = 1024
_LONGEST_REST_SECONDS = 300.0  # after failures, one after the other
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What an archive holds; None is a column that was null."""

    history: bytes
    input: str | None
    output: str | None
    custom_status: str | None


def pack(parts: Parts) -> bytes:
    """Return the parts as an archive holds them."""
    texts = (parts.input, parts.output, parts.custom_status)
    bodies = [parts.history, *(text.encode() for text in texts if text is not None)]
    lengths = map(len, bodies)
    head = _LENGTHS.pack(next(lengths), *(_ABSENT if text is None else next(lengths) for text in texts))
    raw = head + b"".join(bodies)
    # To clear the memory for 32 KB takes longer than to pack the few that most instances have.
    bits = min(max(len(raw).bit_length(), _LEAST_WINDOW_BITS), zlib.MAX_WBITS)
    packer = zlib.compressobj(_ZLIB_LEVEL, wbits=bits, memLevel=bits - 6)
    return packer.compress(raw) + packer.flush()


def unpack(packed: bytes) -> Parts:
    """Return the parts of an archive."""
    raw = zlib.decompress(packed)
    at = _LENGTHS.size
    bodies: list[bytes | None] = []
    for length in _LENGTHS.unpack_from(raw):
        bodies.append(None if length == _ABSENT else raw[at : at + length])
        at += max(length, 0)
    history, *texts = bodies
    return Parts(history or b"", *(None if text is None else text.decode() for text in texts))


def packed_state(state: str | None) -> str | bytes | None:
    """Return an entity's state as its row holds it: a long one is packed."""
    is_long = state is not None and len(state) > _LONG_STATE_CHARACTERS
    return zlib.compress(state.encode(), 1) if state is not None and is_long else state


def unpacked_state(stored: str | bytes | None) -> str | None:
    """Return an entity's state from its row."""
    return zlib.decompress(stored).decode() if isinstance(stored, bytes) else stored


def restore(tx: Transaction, instance_id: str) -> None:
    """Put an instance's rows back as they were at its end; one that is not packed stays as it is."""
    row = tx.run("archive.read", instance_id).fetchone()
    if row is None:
        return
    parts = unpack(row[0])
    tx.run("archive.delete", instance_id)
    tx.run("instance.unarchive", parts.input, parts.output, parts.custom_status, instance_id)
    if parts.history:
        tx.run("history.append", instance_id, 0, parts.history)


@dataclass(frozen=True, slots=True)
class _Finished:
    """An instance to pack; its execution and end fence off one that has begun anew meanwhile."""

    id: str
    execution_id: str
    completed_us: int
    parts: Parts


def _archive(tx: Transaction, *, finished: list[_Finished], packed: list[bytes]) -> None:
    for one, blob in zip(finished, packed, strict=True):
        seq = tx.run("archive.insert", blob).lastrowid
        if tx.run("instance.archive", seq, one.id, one.execution_id, one.completed_us).rowcount:
            tx.run("history.delete", one.id)
        else:
            tx.run("archive.drop", seq)
    tx.give_pages_back()


class Archiver:
    """Packs instances within seconds after their end, and gives back pages that rows have left.

    Args:
        read: Runs a named query on what is committed.
        writer: Stores what is packed.
        rest_seconds: From an end until all that have ended by then are packed. By the machine's clock, since
            nothing that a client sees depends on it.
    """

    def __init__(
        self, read: Callable[..., Iterator[tuple[Any, ...]]], writer: Writer, rest_seconds: float
    ) -> None:
        self._rows = read
        self._writer = writer
        self._rest_seconds = rest_seconds
        self._noted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with what earlier processes have left."""
        self._noted.set()
        self._task = asyncio.create_task(self._run())

    def note(self) -> None:
        """Say that an instance may have ended, or that rows were erased."""
        self._noted.set()

    async def close(self) -> None:
        """Stop; what is not packed is left for the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        rest_seconds = self._rest_seconds
        while not self._writer.outage.is_lasting:
            await self._noted.wait()
            self._noted.clear()
            await asyncio.sleep(rest_seconds)
            try:
                await self._pack_all()
            except Exception as error:
                if is_damage(error):
                    self._writer.outage.begin(error)
                    return
                rest_seconds = min(2 * rest_seconds, _LONGEST_REST_SECONDS)
                _LOGGER.exception(
                    "finished orchestrations could not be packed; they stay as they are for now"
                )
            else:
                rest_seconds = self._rest_seconds

    async def _pack_all(self) -> None:
        while finished := self._read():
            # zlib lets the event loop run meanwhile.
            packed = await asyncio.to_thread(lambda found: [pack(one.parts) for one in found], finished)
            await self._writer.commit_surely(partial(_archive, finished=finished, packed=packed))
        while await self._writer.commit_surely(Transaction.give_pages_back):
            pass

    def _read(self) -> list[_Finished]:
        found: list[_Finished] = []
        size = 0
        rows = self._rows("instance.to_archive", _MOST_INSTANCES)
        for instance_id, execution_id, completed_us, *texts in rows:
            turns = self._rows("history.read", instance_id)
            history = b"".join(map(unpacked, itertools.chain.from_iterable(turns)))
            found.append(_Finished(instance_id, execution_id, completed_us, Parts(history, *texts)))
            size += len(history) + sum(map(len, filter(None, texts)))
            if size > _MOST_BYTES:
                break
        return found
