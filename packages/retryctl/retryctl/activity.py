"""What people did and what happened: circuits, alerts, bulk actions, deployments, settings."""

from argparse import Namespace
from typing import Final

from retryctl import errors
from retryctl.api import MOST_PAGES, Api
from retryctl.documents import given_options
from retryctl.layout import cells, table
from retryctl.screen import Screen

KINDS: Final = ("action", "bulk", "circuit", "alert", "deployment", "settings")

_FILTERS: Final = ("who", "kind", "dependency", "q", "after", "before")


def list_activity(api: Api, args: Namespace, screen: Screen) -> int:
    """List what matches, the newest first."""
    query = given_options(args, *_FILTERS)
    pages = None if args.limit is None else MOST_PAGES
    found = api.pages("activity", limit=args.limit, most_pages=pages, **query)
    rows = [
        [*cells(each, "at", "who", "what"), each["target"]["id"], *cells(each, "dependency", "reason")]
        for each in found["items"]
    ]
    screen.show(found, table(("AT", "WHO", "WHAT", "TARGET", "DEPENDENCY", "REASON"), rows))
    return errors.OK
