"""One execution of the activity `attempt` in a process of its own.

Reads `{"dependencies": TOML, "call": ..., "unread": bool}` and writes the answer, both as JSON. With `unread`
storage takes the marker, and answers 503 to that and to every look at it.
"""

import asyncio
import json
import sys
from contextlib import ExitStack
from typing import Any
from unittest.mock import Mock, patch

from azure.core.exceptions import HttpResponseError

from activities.operation import attempt
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from durable_retry.storage import tables
from tests.support.hub import binding_for

_INSERT = tables.insert_if_absent
_UNAVAILABLE = HttpResponseError("ServerBusy", response=Mock(status_code=503))


async def _insert_and_answer_503(table: str, row: tables.Row) -> bool:
    await _INSERT(table, row)
    raise _UNAVAILABLE


def main() -> None:
    given: dict[str, Any] = json.load(sys.stdin)
    with ExitStack() as stack:
        stack.enter_context(using(parse_config(given["dependencies"], {})))
        if given["unread"]:
            stack.enter_context(patch.object(tables, "insert_if_absent", _insert_and_answer_503))
            stack.enter_context(patch.object(tables, "read_version", side_effect=_UNAVAILABLE))
        json.dump(asyncio.run(attempt(given["call"], binding_for(9))), sys.stdout)


if __name__ == "__main__":
    main()
