"""Masking: which parts of a request, an input or a message people see.

    rules = Masking(fields=("iban",), pointers=("/request/json/card/*",))
    rules.shown({"request": {"method": "POST", "json": {"iban": "DE02", "amount": 5}}})
    # {"request": {"method": "POST", "json": {"iban": "***", "amount": 5}}}

Storage keeps what was received. A document that leaves the app goes through `shown`. When a person edits such
a document and sends it back, `restored` replaces the masks by the stored values.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from durable_retry.base.documents import changed_json
from durable_retry.base.secret_names import (
    NAMED,
    NAMING,
    counts_tokens,
    is_secret_name,
    plain_name,
    without_secrets,
)
from durable_retry.base.text import MASK
from durable_retry.base.validation import (
    InvalidInputError,
    Problem,
    checked,
    pointer_of,
    pointer_parts,
    pointer_problem,
)

CONTENTS: Final = ("request", "input", "data", "message", "result")
"""What a pointer may begin with: a request, a handler's input, an event's data, a message, a result."""

_EVENT_DATA: Final = ("request", "event", "data")
"""Where the dead letter of an event has the event's data."""

_SIDES: Final = frozenset({"before", "after"})
"""Members of a change that hold a value; what was added or removed has one of them."""


class Show(StrEnum):
    """How much is shown."""

    MASKED = "masked"
    NONE = "none"
    ALL = "all"


MAX_SHOWN_DEPTH: Final = 100
"""Levels that are looked at and shown; objects and lists below them are masked. Accepted documents have fewer
(`documents.MAX_DEPTH`), but the text of a dead letter may be JSON of any depth."""


def _field_problem(name: str) -> str | None:
    if not re.search(r"[A-Za-z0-9]", name):
        return "must name a field; * stands for any text beside letters or digits"
    return None


def _pointer_problem(pointer: str) -> str | None:
    first = pointer.partition("/")[2].partition("/")[0]
    if pointer_problem(pointer) is None and first not in CONTENTS:
        return f"must begin with /{', /'.join(CONTENTS)}"
    return pointer_problem(pointer)


type MaskedField = Annotated[str, checked(_field_problem)]
type MaskedPointer = Annotated[str, checked(_pointer_problem)]
type Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Masking:
    """The rules of one dependency.

    Attributes:
        show: `masked` masks by name and by place; `none` shows names without values; `all` shows everything
            but credentials, which are not kept.
        fields: Names that are masked beside `KNOWN_SECRETS`, wherever they stand; `*` is any text.
        pointers: JSON pointers to what is masked, from one of `CONTENTS`; a part `*` is any name or index.
    """

    show: Annotated[Show, Field(strict=False)] = Show.MASKED
    fields: Annotated[tuple[MaskedField, ...], Field(strict=False, max_length=100)] = ()
    pointers: Annotated[tuple[MaskedPointer, ...], Field(strict=False, max_length=100)] = ()

    def shown(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return content as people see it: each of `CONTENTS` masked, other fields as they are."""
        return {
            name: self._shown_value((name,), value) if name in CONTENTS else value
            for name, value in content.items()
        }

    def value(self, value: Any) -> Any:
        """Return a value that is not part of the content, such as a step's result, masked by names alone."""
        return self._shown_value(("",), value)

    def text(self, text: str) -> str:
        """Return a text for a person, such as an error, without credentials and values of secret names."""
        if self.show is Show.ALL:
            return text
        return str(replace(self, show=Show.MASKED).value(text))

    def changes(self, changes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the items of a replay's `changes`, each `{"pointer", "before", "after"}`."""
        return [
            change | {side: self.value_at(change["pointer"], change[side]) for side in _SIDES & change.keys()}
            for change in map(dict, changes)
        ]

    def restored(self, name: str, edited: Any, kept: Any) -> Any:
        """Return edited content, all or some fields of it, with the kept values in place of unedited masks.

        Raises:
            InvalidInputError: A mask stands where nothing was masked, in a text or in an element of a list
                that was edited: what it stands for is not known.
        """
        problems: list[Problem] = []
        content = _restored_value((name,), edited, kept, self._shown_value((name,), kept), problems)
        if problems:
            raise InvalidInputError(problems)
        return content

    def value_at(self, pointer: str, value: Any) -> Any:
        """Return the value at a place of the content, as people see it."""
        place = tuple(pointer_parts(pointer))
        hidden = any(self._is_masked(place[: end + 1], value) for end in range(len(place)))
        return MASK if hidden else self._shown_value(place, value)

    def _shown_value(self, place: Place, value: Any) -> Any:
        if self.show is Show.ALL or value is None:
            return value
        if self._is_masked(place, value) or (self.show is Show.NONE and not _is_shown_place(place, value)):
            return MASK
        if isinstance(value, str):
            return self._shown_text(place, value)
        return self._shown_members(place, value) if isinstance(value, _CONTAINERS) else value

    def _shown_members(self, place: Place, value: Mapping[str, Any] | list[Any]) -> Any:
        if len(place) > MAX_SHOWN_DEPTH:
            return MASK
        if isinstance(value, list):
            shown = [self._shown_value((*place, str(index)), member) for index, member in enumerate(value)]
            return self._without_pairs(value, shown) if _are_pairs(value) else shown
        hidden = self._named_values(value)
        return {
            name: MASK if name in hidden else self._shown_value((*place, str(name)), member)
            for name, member in value.items()
        }

    def _shown_text(self, place: Place, text: str) -> str:
        """Mask inside a text: as the JSON that it is, so that whole objects are masked too, or by pattern."""
        as_json = changed_json(text, lambda document: self._shown_value((*place, ""), document))
        return without_secrets(text, self.hides) if as_json is None else as_json

    def _is_masked(self, place: Place, value: Any) -> bool:
        if self.show is Show.NONE:
            return place == ("request", "path")
        name = place[-1]
        if self.hides(name) and not counts_tokens(name, value):
            return True
        if place[-2:-1] == _IN_QUERY and plain_name(name) == "code":
            return True
        if not self.pointers:
            return False
        places = [place, ("data", *place[3:])] if place[:3] == _EVENT_DATA else [place]
        return any(_leads_to(pointer, candidate) for pointer in self.pointers for candidate in places)

    def _without_pairs(self, pairs: list[list[Any]], shown: list[Any]) -> list[Any]:
        return [
            [name, MASK] if pair != MASK and value is not None and self.hides(name) else pair
            for (name, value), pair in zip(pairs, shown, strict=True)
        ]

    def _named_values(self, content: Mapping[str, Any]) -> set[str]:
        """Return the members whose secret another one names, as in `{"name": "password", "value": "x"}`."""
        named = {name for name in NAMED & content.keys() if content[name] is not None}
        if named and any(isinstance(name, str) and self.hides(name) for name in map(content.get, NAMING)):
            return named
        return set()

    def hides(self, name: str) -> bool:
        """Return whether what has this name is a secret."""
        return is_secret_name(self.fields, name)


_CONTAINERS: Final = (dict, list, Mapping)
"""`dict` and `list` are checked faster than `Mapping`."""
_IN_QUERY: Final = ("query",)

MASKED: Final = Masking()
"""The rules where nothing is configured."""


def _are_pairs(items: list[Any]) -> bool:
    """Return whether a list is one of names with values, as headers are written: `[["cookie", "x"]]`."""
    return bool(items) and all(
        isinstance(item, list) and len(item) == len(("name", "value")) and isinstance(item[0], str)
        for item in items
    )


def _is_shown_place(place: Place, value: Any) -> bool:
    """Return whether a place is shown although values are hidden: a method, names of a request's parts."""
    is_request = place[0] == "request" and isinstance(value, Mapping)
    return place == ("request", "method") or (is_request and place[1:] in {(), ("query",), ("headers",)})


def _leads_to(pointer: str, place: Place) -> bool:
    parts = pointer_parts(pointer)
    return len(parts) == len(place) and all(
        part in ("*", name) for part, name in zip(parts, place, strict=True)
    )


def _restored_value(place: Place, edited: Any, kept: Any, shown: Any, problems: list[Problem]) -> Any:
    """Return `edited` with `kept` where it equals what was `shown`; report masks without a kept value."""
    if _is_same(edited, shown):
        return kept
    if isinstance(edited, Mapping):
        are_objects = isinstance(kept, Mapping) and isinstance(shown, Mapping)
        return {
            name: _restored_value((*place, str(name)), member, kept[name], shown[name], problems)
            if are_objects and name in kept
            else _restored_value((*place, str(name)), member, None, None, problems)
            for name, member in edited.items()
        }
    if isinstance(edited, list):
        pairs = list(zip(kept, shown, strict=True)) if isinstance(kept, list) else []
        return [
            _restored_element((*place, str(index)), member, pairs[index : index + 1], problems)
            for index, member in enumerate(edited)
        ]
    if isinstance(edited, str) and edited != kept and edited.count(MASK) > _own_masks(kept, shown):
        problems.append(Problem(pointer_of(*place), "holds a masked value: write the value out"))
    return edited


def _restored_element(place: Place, edited: Any, pair: list[tuple[Any, Any]], problems: list[Problem]) -> Any:
    """Restore an element of a list only as a whole: an edited one may have come from another place."""
    if pair and _is_same(edited, pair[0][1]):
        return pair[0][0]
    return _restored_value(place, edited, None, None, problems)


def _is_same(one: Any, other: Any) -> bool:
    # As text, since to Python true and 1 are the same.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _own_masks(kept: Any, shown: Any) -> int:
    """Return how often the mask stands in the received text itself, if nothing of that is masked."""
    return kept.count(MASK) if isinstance(kept, str) and kept == shown else 0
