"""Commands about alerts (what is raised, silences, a test of the receivers), and about the activity."""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from retryctl import errors
from retryctl.api import Api
from retryctl.commands import Ask, Command, Given, Listing
from retryctl.output import Rows, Screen, fill, spaced

_NOBODY: Final = "nobody gets messages"


def _view(document: Any) -> Iterator[RenderableType]:
    silences = "id:silence condition receiver:only_to until by reason"
    parts: list[RenderableType] = [
        Rows(document["items"], "condition state raised_at text", empty="nothing is raised"),
        Rows(document["silences"], silences, empty="no silence holds"),
        Rows(document["receivers"], "receiver format host", empty=_NOBODY),
    ]
    quiet = ["it is a quiet hour: messages wait for its end"] if document["is_quiet"] else []
    return spaced([part] for part in (*parts, *quiet))


def _silenced(document: Any) -> Iterator[Text]:
    to = " for {receiver}" if document.get("receiver") else ""
    yield fill(f"{{id}}  {{condition}}{to} until {{until}}", document)


def _test(api: Api, _: Given, screen: Screen) -> int:
    """Send a message to every receiver that says that it is a test; 1 where one did not arrive."""
    document = api.ask("POST alerts/test")
    screen.show(document, lambda shown: [Rows(shown["items"], "receiver state detail:why", empty=_NOBODY)])
    has_failed = any(sent["state"] != "sent" for sent in document["items"])
    return errors.FAILED if has_failed else errors.OK


COMMANDS: Final = (
    Command("alerts show", "show what is raised, silences and receivers", Ask("GET alerts", _view)),
    Command(
        "alerts silence",
        "keep messages about a condition back",
        Ask("POST alerts/silences", _silenced),
        "condition until receiver why",
    ),
    Command(
        "alerts end-silence", "end a silence early", Ask("DELETE alerts/silences/{id}", "{id}  ended"), "id"
    ),
    Command("alerts test", "send a message to every receiver that says that it is a test", _test),
    Command(
        "activity",
        "list what people did and what happened: circuits, alerts, bulk actions, deployments, settings",
        Listing("activity", "at:at who what target.id:target dependency reason"),
        "who kind dependency q after before limit",
    ),
)
