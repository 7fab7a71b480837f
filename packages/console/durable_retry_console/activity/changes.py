"""Noting that other code runs than before, or that settings differ: each process compares digests once.

Values are not kept: a digest of each setting says which one changed. Secrets have none, so a rotated secret
does not show. While two versions run side by side, a new process of either is an entry where the other one
compared last.
"""

import asyncio
import os
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final

from pydantic import TypeAdapter

from durable_retry.base.text import names_text
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.facts import TargetType
from durable_retry.settings.catalogue import groups
from durable_retry.settings.configuration import dependencies
from durable_retry.settings.retention import retention
from durable_retry_console.activity.code import running_code
from durable_retry_console.activity.shapes import ActivityItem, ActivityKind
from durable_retry_console.activity.store import WRITER, remove_activity_before, replace_known
from durable_retry_console.activity.watch import target_of

# The names that are spelled out of a change with many.
_NAMED: Final = 10


async def note_changes(_hub: TaskHub, now: datetime) -> None:
    """Note what differs from what ran last; the first run of an app only remembers."""
    # What is imported only when it is needed is not in every process.
    running = await asyncio.to_thread(running_code)
    for name, digests, kind, what in (
        ("code", running, ActivityKind.DEPLOYMENT, "other code was deployed"),
        ("settings", _settings_digests(), ActivityKind.SETTINGS, "settings were changed"),
    ):
        if _compared.get(name) == digests:
            continue
        changed = await replace_known(name, digests, is_part=kind is ActivityKind.DEPLOYMENT)
        _compared[name] = digests
        if changed:
            target, reason = target_of(TargetType.APP, kind.value), names_text(changed, _NAMED)
            WRITER.note(ActivityItem(at=now, kind=kind, who=None, what=what, target=target, reason=reason))


# What this process has compared; it costs requests to storage, and what a process runs with does not change.
_compared: Final[dict[str, Mapping[str, str]]] = {}


async def remove_old_activity(_hub: TaskHub, now: datetime) -> None:
    """Remove what is older than archived dead letters may be: a step of upkeep."""
    kept_for = retention().archived_for
    if kept_for is not None:
        await remove_activity_before(now - kept_for)


def _settings_digests() -> dict[str, str]:
    texts: dict[str, str] = {}
    for group in groups():
        texts |= {each.name: os.environ.get(each.name, "") for each in group.described() if not each.secret}
    # Their secrets are written as masks.
    written: Mapping[str, Dependency] = dependencies().dependencies
    texts |= {f"dependencies.{name}": _DEPENDENCY.dump_json(each).decode() for name, each in written.items()}
    return {name: sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}


_DEPENDENCY: Final = TypeAdapter(Dependency)
