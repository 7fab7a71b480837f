"""Commands about alerts (what is raised, a test of the receivers), and about the activity."""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import RenderableType

from retryctl import errors
from retryctl.api import Api
from retryctl.commands import Ask, Command, Given, Listing
from retryctl.output import Rows, Screen

_NOBODY: Final = "nobody gets messages"


def _view(document: Any) -> Iterator[RenderableType]:
    yield Rows(document["items"], "condition raised_at text", empty="nothing is raised")
    yield ""
    yield Rows(document["receivers"], "receiver host", empty=_NOBODY)


def _test(api: Api, _: Given, screen: Screen) -> int:
    """Send a message to every receiver that says that it is a test; 1 where one did not arrive."""
    document = api.ask("POST alerts/test")
    screen.show(document, lambda shown: [Rows(shown["items"], "receiver state detail:why", empty=_NOBODY)])
    has_failed = any(sent["state"] != "sent" for sent in document["items"])
    return errors.FAILED if has_failed else errors.OK


COMMANDS: Final = (
    Command("alerts show", "show what is raised, and the receivers", Ask("GET alerts", _view)),
    Command("alerts test", "send a test message to every receiver", _test),
    Command(
        "activity",
        "list what people did and what happened: outages, bulk actions, deployments, settings",
        Listing("activity", "at:at who what target.id:target dependency reason"),
        "who kind dependency q after before limit",
    ),
)
