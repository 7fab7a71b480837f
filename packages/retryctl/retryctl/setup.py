"""The command `setup`: the app makes what it needs in its storage account."""

from collections import Counter
from typing import Any, Final

from retryctl.commands import Ask, Command
from retryctl.doctor import REMEDIES
from retryctl.output import Lines, fill


def _view(document: Any) -> Lines:
    """Yield what the app made, what was there, and what it may not make."""
    for item in document["items"]:
        padded = " " * (9 - len(item["state"]))
        yield fill(f"{item['kind']:6} {{state}}{padded}{{name}}[  {{detail}}]", item)
    counts = Counter(item["state"] for item in document["items"])
    end = f"{counts['made']} made, {counts['present']} present"
    yield (
        f"{end}, {counts['refused']} refused; what to do: {REMEDIES['storage']}" if counts["refused"] else end
    )


def _is_whole(document: Any) -> bool:
    return all(item["state"] != "refused" for item in document["items"])


COMMANDS: Final = (
    Command(
        "setup",
        "make the queues and tables that the app needs and lacks",
        Ask("POST setup", _view, went_well=_is_whole),
        "app_url",
    ),
)
