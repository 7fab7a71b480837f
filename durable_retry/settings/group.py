"""App settings that belong together, as one class: a field is a setting with its default, range and meaning.

The class reads the environment, reports every mistake at once, and describes itself for docs/settings.md.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from durable_retry.base.validation import MAX_SECONDS, Problem


class SettingsError(ValueError):
    """Invalid app settings; `problems` has one entry per mistake, the setting's name as pointer."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.pointer}: {problem.detail}" for problem in self.problems))


def setting(
    meaning: str,
    default: Any = "",
    *,
    name: str | None = None,
    unit: str = "",
    secret: bool = False,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare one setting as a field of a `SettingsGroup`; the meaning is one sentence for a person.

    The default holds when the setting is absent or empty. Its variable has the field's name in capitals
    unless it is named. The choices are words in any case; none allow any text.
    """
    extra: JsonDict = {"unit": unit, "secret": secret, "choices": list(choices)}
    return Field(
        default, alias=name, description=meaning, json_schema_extra=extra, ge=least, le=most, repr=not secret
    )


def seconds(meaning: str, default: float) -> Any:
    """Declare a setting in seconds, at most a year: far above that an instant before now is none."""
    return setting(meaning, default, unit="s", least=0, most=MAX_SECONDS)


_DAYS_OF_A_CENTURY: Final = 36_500
"""Far beyond any need, and far below the largest timedelta."""


_NUMBER: Final = re.compile(r"-?[0-9]*\.?[0-9]+")
"""What pydantic takes besides is rarely meant: `1_000`, `1e3`, ` 5`."""


def days(meaning: str, default: float) -> Any:
    """Declare a setting in days, 0 or more."""
    return setting(meaning, default, unit="days", least=0, most=_DAYS_OF_A_CENTURY)


def span_of_days(number: float) -> timedelta | None:
    """Return the time of a setting in days; None, which is for ever, for 0."""
    return None if number == 0 else timedelta(days=number)


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of one setting; `least` and `most` are None where it is no number, or has no bound."""

    name: str
    meaning: str
    default: Any
    unit: str
    secret: bool
    choices: tuple[str, ...]
    is_whole: bool
    least: float | None
    most: float | None

    @property
    def is_number(self) -> bool:
        return isinstance(self.default, int | float)

    @property
    def form(self) -> str:
        """What a valid value is, such as `a whole number of at least 1`."""
        least = "" if self.least is None else f" of at least {self.least:g}"
        most = "" if self.most is None else f" and at most {self.most:.15g}"
        return f"a {'whole ' if self.is_whole else ''}number{least}{most}"


class SettingsGroup(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=str.upper,
        validate_by_name=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )

    heading: ClassVar[str]
    """The group's title in the reference."""
    is_shared: ClassVar[bool] = False
    """Whether others read these settings, too."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Read the group from environment variables; an empty one counts as not set.

        Raises:
            SettingsError: Lists every setting with an invalid value, and what does not fit together.
        """
        across = tuple(cls.mistakes_across(environ))
        try:
            group = cls.model_validate(cls.texts_in(environ))
        except ValidationError as error:
            settings = {setting.name: setting for setting in cls.described()}
            problems = (
                problem
                for wrong in error.errors()
                for problem in _problems_of_setting(settings[str(wrong["loc"][0])], wrong)
            )
            raise SettingsError((*problems, *across)) from None
        if across:
            raise SettingsError(across)
        return group

    @classmethod
    def texts_in(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """Return what the environment holds of this group."""
        names = (described.name for described in cls.described())
        return {name: environ[name] for name in names if environ.get(name)}

    @field_validator("*", mode="before")
    @classmethod
    def _check_text(cls, value: Any, info: ValidationInfo) -> Any:
        """Return a word as its setting spells it, since people write words in any case; check other texts."""
        described = _setting_of_field(cls.model_fields[str(info.field_name)])
        if described.is_number and isinstance(value, str) and not _NUMBER.fullmatch(value):
            raise ValueError(f"must be {described.form}, not {value!r}")
        choices = {word.lower(): word for word in described.choices}
        if choices and value.lower() not in choices:
            allowed = f"one of {', '.join(described.choices)}" if len(choices) > 1 else described.choices[0]
            raise ValueError(f"must be {allowed}, not {value!r}")
        return choices[value.lower()] if choices else value

    @classmethod
    def mistakes_across(cls, environ: Mapping[str, str]) -> Iterator[Problem]:  # noqa: ARG003 - groups override it
        """Yield what is wrong between several settings, each valid in itself."""
        yield from ()

    @classmethod
    def described(cls) -> Iterator[Setting]:
        """Yield the settings in the order of their declaration."""
        return (_setting_of_field(field) for field in cls.model_fields.values())

    @classmethod
    def name_of(cls, field: str) -> str:
        """Return the environment variable of a field; KeyError where the group has no such field."""
        return str(cls.model_fields[field].alias)

    @classmethod
    def reference_to(cls, field: str) -> str:
        """Return how a binding refers to a setting: the host puts the value in, so metadata hide it."""
        return f"%{cls.name_of(field)}%"


def _setting_of_field(field: FieldInfo) -> Setting:
    schema = field.json_schema_extra
    extra: Mapping[str, Any] = schema if isinstance(schema, dict) else {}
    return Setting(
        name=str(field.alias),
        meaning=str(field.description),
        default=field.default,
        unit=extra.get("unit", ""),
        secret=extra.get("secret", False),
        choices=tuple(extra.get("choices", ())),
        is_whole=field.annotation is int,
        least=next((rule.ge for rule in field.metadata if hasattr(rule, "ge")), None),
        most=next((rule.le for rule in field.metadata if hasattr(rule, "le")), None),
    )


def _problems_of_setting(described: Setting, error: ErrorDetails) -> Iterator[Problem]:
    cause = error.get("ctx", {}).get("error")
    problems = getattr(cause, "problems", None)
    if problems is not None:
        yield from (problem.below(described.name) for problem in problems)
    elif cause is not None:
        yield Problem(described.name, str(cause))
    else:
        yield Problem(described.name, f"must be {described.form}, not {error['input']!r}")
