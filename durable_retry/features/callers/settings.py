"""App settings of callers: who they are, and what they may do."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator

from durable_retry.base.names import Role
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.settings.group import SettingsGroup, setting

_KEY_ENTRY: Final = re.compile(r"([A-Za-z0-9_.\-]{1,64})=(caller|reader|operator):([0-9a-f]{64})")
_KEY_FORM: Final = (
    "name=ROLE:SHA256, with reader, operator or caller and the key's SHA-256 in 64 hexadecimal digits"
)


@dataclass(frozen=True, slots=True)
class CallerKey:
    """A function key that the settings name."""

    name: str
    role: Role


def _parsed_names(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    names = frozenset(filter(None, (name.strip() for name in text.split(","))))
    if not names:  # As if it were not set, everybody could do everything.
        raise ValueError("names nobody: leave it empty where everybody may")
    return names


def _parsed_keys(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    keys, wrong = dict[str, CallerKey](), list[Problem]()
    for number, part in enumerate(text.split(), 1):
        entry = _KEY_ENTRY.fullmatch(part)
        if entry is None:
            # Without the value: somebody may have written the key itself.
            wrong.append(Problem("", f"entry {number} must be {_KEY_FORM}"))
            continue
        key = CallerKey(entry[1], Role(entry[2]))
        if keys.setdefault(entry[3], key) != key:
            wrong.append(
                Problem("", f"entry {number} has the key of {keys[entry[3]].name}, and is not the same")
            )
    if not keys and not wrong:
        wrong.append(Problem("", "names no key: leave it empty where every key is an operator's"))
    if wrong:
        raise InvalidInputError(wrong)
    return keys


class CallerSettings(SettingsGroup):
    """How callers are recognised."""

    heading: ClassVar[str] = "Callers"

    operator_roles: Annotated[frozenset[str], BeforeValidator(_parsed_names)] = setting(
        "Who may change something, of the people whom App Service authentication lets in: values of role or "
        "group claims, or `claim=value`, separated by commas; the others only read. Not set: everybody.",
        frozenset(),
    )
    reader_roles: Annotated[frozenset[str], BeforeValidator(_parsed_names)] = setting(
        "The same for who may read; the rest gets 403. Not set: everybody whom it lets in.", frozenset()
    )
    caller_keys: Annotated[Mapping[str, CallerKey], BeforeValidator(_parsed_keys)] = setting(
        "Names and roles of function keys, `name=ROLE:SHA256` separated by spaces, with the role `reader`, "
        "`operator` or `caller` and the key's SHA-256 in hexadecimal. Any other key gets 401. Not set: every "
        "key is an operator's.",
        {},
    )
    http_limit_keys: int = setting(
        "Limit keys that one caller of `CALLER_KEYS`, or a person, may use within a minute over HTTP, in one "
        "process; a submission with a further one is answered 503; 0 = no limit.",
        1000,
        least=0,
    )
    website_auth_enabled: str = setting(
        "Whether App Service authentication is on; Azure sets it. Only then are its headers trusted."
    )

    @classmethod
    def mistakes_across(cls, environ: Mapping[str, str]) -> Iterator[Problem]:
        """Refuse roles that nobody can have, or that leave nobody who may change anything."""
        operators, readers = cls.name_of("operator_roles"), cls.name_of("reader_roles")
        texts = cls.texts_in(environ)
        chosen = {operators, readers} & texts.keys()
        if chosen and not _is_on(texts.get(cls.name_of("website_auth_enabled"), "")):
            detail = (
                "takes effect with App Service authentication only: switch it on, or leave this empty and "
                f"give keys roles with {cls.name_of('caller_keys')}"
            )
            yield from (Problem(name, detail) for name in sorted(chosen))
        if chosen == {readers}:
            yield Problem(operators, f"is needed beside {readers}: nobody could change anything")

    @property
    def say_something(self) -> bool:
        """Whether they say something about any caller."""
        return self.trusts_principals or bool(self.caller_keys)

    @property
    def trusts_principals(self) -> bool:
        """Whether the platform authenticates people, and so sets their headers itself."""
        return _is_on(self.website_auth_enabled)

    def role_of(self, claims: frozenset[str]) -> Role:
        """Return the role of a person.

        Without settings everybody is an operator; with those of operators alone all others are readers.
        """
        if not self.operator_roles and not self.reader_roles:
            return Role.OPERATOR
        if claims & self.operator_roles:
            return Role.OPERATOR
        is_reader = not self.reader_roles or bool(claims & self.reader_roles)
        return Role.READER if is_reader else Role.NONE


def _is_on(text: str) -> bool:
    return text.lower() == "true"
