"""The command `setup`: the app makes what it needs in its storage account."""

from typing import Final

from rich.text import Text

from retryctl import errors
from retryctl.api import Api
from retryctl.commands import Command, Given
from retryctl.doctor import REMEDIES
from retryctl.output import Screen, state


def _setup(api: Api, _: Given, screen: Screen) -> int:
    """Let the app make what is missing; say what it made, what was there, and what it may not make."""
    document = api.ask("POST setup")
    items = document["items"]
    made, refused = (sum(item["state"] == word for item in items) for word in ("made", "refused"))
    end = f"{made} made, {len(items) - made - refused} present"
    if refused:
        end += f", {refused} refused; what to do: {REMEDIES['storage']}"
    screen.show(document, lambda shown: [*map(_line, shown["items"]), end])
    return errors.FAILED if refused else errors.OK


def _line(item: Given) -> Text:
    word, detail = state(item["state"]), item.get("detail")
    name = item["name"] if detail is None else f"{item['name']}  {detail}"
    return Text.assemble(f"{item['kind']:6} ", word, " " * (9 - len(word)), name)


COMMANDS: Final = (
    Command("setup", "make the queues and tables that the app needs and lacks", _setup, "app_url"),
)
