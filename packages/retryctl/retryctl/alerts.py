"""Commands about alerts (what is raised, a test of the receivers), and about the activity."""

from typing import Any, Final

from retryctl.commands import Ask, Command, Listing
from retryctl.output import Lines, Rows

_NOBODY: Final = "nobody gets messages: set ALERT_WEBHOOK_URL or ALERT_SLACK_URL"


def _view(document: Any) -> Lines:
    yield Rows(document["items"], "condition raised_at text", empty="nothing is raised")
    yield ""
    yield Rows(document["receivers"], "receiver host", empty=_NOBODY)


COMMANDS: Final = (
    Command("alerts show", "show what is raised, and the receivers", Ask("GET alerts", "items", _view)),
    Command(
        "alerts test",
        "send a test message to every receiver",
        Ask(
            "POST alerts/test",
            "items",
            lambda document: [Rows(document["items"], "receiver state detail:why", empty=_NOBODY)],
            went_well=lambda document: all(sent["state"] == "sent" for sent in document["items"]),
        ),
    ),
    Command(
        "activity",
        "list what people did and what happened: outages, bulk actions, deployments, settings",
        Listing("activity", "at:at who what target.id:target dependency reason"),
        "who kind dependency q after before limit",
    ),
)
