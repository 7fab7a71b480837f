"""Commands that tests run to their end."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.processes import ROOT


def ran(
    command: Sequence[str | Path], *, cwd: Path = ROOT, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command, at the root unless `cwd` says where, and return its exit code and what it wrote."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=check, **options)
