"""Runs a part of a benchmark in a process of its own, which prints what it measured as JSON."""

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from scripts.processes import ROOT

_LOG_END: Final = 2_000  # characters of the log that an error shows


async def run_child(
    *arguments: object,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    within_seconds: float | None = None,
) -> Any:
    """Run this Python with some arguments in the repository; return the last line that it prints, as JSON.

    Args:
        arguments: Such as `-m` and a module.
        log: The file that its standard error is appended to; None leaves it on this process's own.
        env: Its whole environment; None means this process's own.
        within_seconds: How long it may take; None for as long as it takes.

    Raises:
        RuntimeError: It failed.
        TimeoutError: It took longer, and was killed.
    """
    with ExitStack() as stack:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *map(str, arguments)),
            cwd=ROOT,
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if log is None else stack.enter_context(log.open("ab")),
        )
    try:
        async with asyncio.timeout(within_seconds):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        end = "see above" if log is None else (await asyncio.to_thread(log.read_text))[-_LOG_END:]
        raise RuntimeError(f"{' '.join(map(str, arguments))} ended with {process.returncode}: {end}")
    return json.loads(output.splitlines()[-1])
