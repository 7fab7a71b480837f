"""What commands do: most ask one route of the API and show its answer, as a row of a table says."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from shlex import quote
from typing import Any, Final

from rich.text import Text

from retryctl import clock, errors
from retryctl.api import FOREIGN, Api
from retryctl.errors import ApiError, CommandError, UnreachableError
from retryctl.output import Lines, Rows, Screen, View, fill

type Given = dict[str, Any]
"""Options and arguments that a command line gives, by the names that the API has for them."""
type Run = Callable[[Api, Given, Screen], int]
"""Runs a command, and returns its exit code."""

POLL_SECONDS: Final = 1.0
_DRAW_SECONDS: Final = 0.2
PATIENCE_SECONDS: Final = 30.0
"""How long the API may be unreachable before watching ends."""

_NOT_KNOWN: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST)


@dataclass(frozen=True, slots=True)
class Command:
    """A command."""

    name: str  # such as `get`, or `outbox list` in a group
    words: str  # what it does, for `--help`
    run: Run
    takes: str = ""  # names of its options, see `retryctl.options`


@dataclass(frozen=True, slots=True)
class Listing:
    """Shows a list of the API as a table; the command's options are its filters."""

    path: str
    columns: str  # see `Rows`
    id_name: str = ""  # the member that `--ids` writes
    made: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)  # what columns name and items lack

    def __call__(self, api: Api, given: Given, screen: Screen) -> int:
        """Read the pages, and show them."""
        self.show(api, given, screen)
        return errors.OK

    def show(self, api: Api, given: Given, screen: Screen) -> Any:
        """Read the pages, show them and return them as one."""

        def view(shown: Any) -> Lines:
            items = [item | {name: make(item) for name, make in self.made.items()} for item in shown["items"]]
            return [Rows(items, self.columns)]

        document = api.pages(self.path, given, given.pop("limit", 50))
        screen.show(document, view, self.id_name)
        return document


@dataclass(frozen=True, slots=True)
class Watch:
    """Follows a document until it ends."""

    path: str  # without its id
    id_name: str  # the member with the id
    finished: AbstractSet[str]  # values of its `status` at the end
    live: Callable[[Any], str]  # the line that is redrawn until then
    change: Callable[[Any, Any], Lines]  # lines for a change, of what it was ({} at first) and what it is
    # Whether the end is the one that was wanted.
    went_well: Callable[[Any], bool] = lambda ended: bool(ended["status"] == "succeeded")

    def __call__(self, api: Api, given: Given, screen: Screen) -> int:
        """Follow it.

        Raises:
            UnreachableError: There is no answer for longer than `PATIENCE_SECONDS`.
        """
        before: Any = {}
        while True:
            document = self._asked_patiently(api, given, screen)
            if document != before:
                screen.show_change(document, self.change(before, document))
                before = document
            if document["status"] in self.finished:
                return errors.OK if self.went_well(document) else errors.FAILED
            # Drawn anew between two looks, so that it counts down.
            for _ in range(round(POLL_SECONDS / _DRAW_SECONDS)):
                screen.live(Text(self.live(document)))
                clock.pause(_DRAW_SECONDS)

    def _asked_patiently(self, api: Api, given: Given, screen: Screen) -> Any:
        began = clock.monotonic_seconds()
        while True:
            try:
                return api.ask(f"GET {self.path}/{{id}}", given)
            except UnreachableError as error:
                if clock.monotonic_seconds() - began > PATIENCE_SECONDS:
                    raise
                screen.live(Text(f"{error}; trying again"))
                clock.pause(POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Ask:
    """Sends one request, and shows its answer."""

    route: str  # see `Api.ask`; the command's options are what is sent
    member: str  # every answer of the route has it; one without it does not come from the API
    view: View | str  # of the answer, or a line of it, see `fill`; both find what was sent under `given`
    watch: Watch | None = None  # follows what was started where `--watch` is given
    _: KW_ONLY
    body: Callable[[Given, Screen], Given] = lambda given, _: given  # what is sent; raises `UsageError`
    went_well: Callable[[Any], bool] = lambda _: True  # whether the answer is the one that was wanted

    def __call__(self, api: Api, given: Given, screen: Screen) -> int:
        """Send it; KeyError where something else answers."""
        is_watched, seconds = given.pop("watch", False), given.pop("wait", 0)
        sent, view = self.body(given, screen), self.view
        document = api.ask(self.route, sent, headers={"Prefer": f"wait={seconds}"} if seconds else None)
        if self.member not in document:
            raise KeyError(self.member)
        if is_watched and self.watch is not None and (started := document.get(self.watch.id_name)):
            return self.watch(api, {"id": started}, screen)
        lines = view if callable(view) else lambda shown: [fill(view, shown)]
        screen.show(document, lambda shown: lines(shown | {"given": sent}))
        return errors.OK if self.went_well(document) else errors.FAILED


def run_command(run: Run, api: Api, given: Given, screen: Screen) -> int:
    """Run a command; where nothing was found, the name of a dependency may be wrong, or a key is no id.

    Raises:
        CommandError: It failed.
        Exception: The command has a fault of its own: the API itself is there.
    """
    name, item_id = given.get("dependency"), given.get("id")
    try:
        code = run(api, given, screen)
    except ApiError as error:
        if item_id is not None and error.status == HTTPStatus.NOT_FOUND:
            raise CommandError(
                f"{error}\nA key or another id? Look everywhere: retryctl find {quote(item_id)}"
            ) from None
        if name is None or error.status not in _NOT_KNOWN or "did you mean" in str(error):
            raise
        raise CommandError("\n".join(filter(None, (str(error), api.unknown_dependency(name))))) from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        try:
            api.health()
        except CommandError:
            raise CommandError(f"{api.url} answers with something else ({error!r}): {FOREIGN}") from error
        raise
    if name is not None and screen.found_nothing and (guess := api.unknown_dependency(name)):
        screen.note(guess)
    return code
