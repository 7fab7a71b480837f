"""App settings of who calls: which roles people and keys have."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Final

from durable_retry.engine.base.validation import Problem
from durable_retry.settings.app import SettingsError
from durable_retry.settings.catalogue import AUTH_ENABLED, CALLER_KEYS, OPERATOR_ROLES, READER_ROLES


class Role(StrEnum):
    """What a caller may do.

    A reader looks; an operator also changes; nobody does neither.
    """

    NONE = "none"
    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class CallerKey:
    """A function key that the settings name."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerSettings:
    """How callers are recognised.

    Attributes:
        trusts_principals: Whether the platform authenticates people, and so sets their headers itself.
        operators: Values of role claims, or `claim=value`, that make an operator.
        readers: The same for a reader.
        keys: By the SHA-256 of a function key, 64 hexadecimal digits.
    """

    trusts_principals: bool = False
    operators: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()
    keys: Mapping[str, CallerKey] = field(default_factory=dict)

    @property
    def knows_callers(self) -> bool:
        """Whether anything can be said about a caller."""
        return self.trusts_principals or bool(self.keys)

    def role_of(self, claims: frozenset[str]) -> Role:
        """Return the role of a person.

        Without settings everybody is an operator; with those of operators alone all others are readers.
        """
        if not self.operators and not self.readers:
            return Role.OPERATOR
        if claims & self.operators:
            return Role.OPERATOR
        is_reader = not self.readers or bool(claims & self.readers)
        return Role.READER if is_reader else Role.NONE


_KEY: Final = re.compile(r"([A-Za-z0-9_.\-]{1,64})=(reader|operator):([0-9a-f]{64})")


def read_caller_settings(environ: Mapping[str, str]) -> CallerSettings:
    """Read the settings.

    Raises:
        SettingsError: Lists every setting with an invalid value.
    """
    problems: list[Problem] = []
    settings = CallerSettings(
        trusts_principals=AUTH_ENABLED.get(environ).lower() == "true",
        operators=_names(OPERATOR_ROLES.get(environ)),
        readers=_names(READER_ROLES.get(environ)),
        keys=dict(_keys(environ, problems)),
    )
    if (settings.operators or settings.readers) and not settings.trusts_principals:
        detail = "takes effect with App Service authentication only: switch it on, or leave this empty"
        name = OPERATOR_ROLES.name if settings.operators else READER_ROLES.name
        problems.append(Problem(name, detail))
    if settings.readers and not settings.operators:
        detail = f"is needed beside {READER_ROLES.name}: nobody could change anything"
        problems.append(Problem(OPERATOR_ROLES.name, detail))
    if problems:
        raise SettingsError(tuple(problems))
    return settings


@cache
def caller_settings() -> CallerSettings:
    """Return this process's settings, read once.

    Raises:
        SettingsError: See `read_caller_settings`.
    """
    return read_caller_settings(os.environ)


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in text.split(","))))


def _keys(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[tuple[str, CallerKey]]:
    for number, text in enumerate(CALLER_KEYS.get(environ).split(), 1):
        found = _KEY.fullmatch(text)
        if found is None:
            # Without the value: somebody may have written the key itself.
            form = "name=reader:SHA256 or name=operator:SHA256, the key's SHA-256 in 64 hexadecimal digits"
            problems.append(Problem(CALLER_KEYS.name, f"entry {number} must be {form}"))
        else:
            yield found[3], CallerKey(found[1], Role(found[2]))
