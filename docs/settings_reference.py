"""The tables of docs/settings.md, the reference of every setting, from the code that reads them.

Names, defaults and ranges come from the values and models that validate, meanings from the same place or from
the docstrings of what they become. The text around them, and the two tables of what others read, are written
by hand.
"""

import argparse
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, get_args, get_origin

from pydantic import BaseModel

import onebox.cli
import onebox.environment
import retryctl.api
import scripts.run
from docs.tables import table, with_tables
from durable_retry.rules.config.dependency import TABLES, Dependency, dependency_table, models_of_features
from durable_retry.rules.retry.policy import PRESETS, RetryPolicy
from durable_retry.settings.catalogue import groups
from durable_retry.settings.group import Setting

_SETTING_HEAD: Final = ("app setting", "default", "unit", "range", "what it is")
_KEY_HEAD: Final = ("key", "default", "unit", "range", "what it is")

_DOCUMENTED: Final = {"retry": RetryPolicy}
"""Classes that say what the keys of a table mean, where the table does not."""

_ENTRY: Final = re.compile(r"^    (\w+): ", re.MULTILINE)
_UNITS: Final = {"_seconds": "s", "_per_second": "1/s", "ratio": "share"}


def reference(text: str) -> str:
    """Return the text of docs/settings.md with its tables behind the markers of each section, in order.

    Raises:
        ValueError: A section has no heading, or not as many markers as tables.
    """
    for heading, *tables in sections():
        begin = text.index(f"\n{heading}\n") + len(heading)
        following = text.find("\n#", begin)
        end = len(text) if following == -1 else following
        section = with_tables(f"{text[begin:end]}\n", tables)
        text = text[:begin] + section.removesuffix("\n") + text[end:]
    return text


def sections() -> Iterator[tuple[str, ...]]:
    """Give the heading of each section and its tables."""
    yield from app_settings()
    yield from dependency_keys()
    yield "### Presets", presets()
    yield from programs()


def app_settings() -> Iterator[tuple[str, str]]:
    """Give a section for each group."""
    for group in groups():
        yield f"### {group.heading}", table(_SETTING_HEAD, _setting_rows(group.described()))


def _setting_rows(settings: Iterable[Setting]) -> Iterator[tuple[str, ...]]:
    for setting in settings:
        unit, allowed = _unit_and_range(setting)
        yield f"`{setting.name}`", shown(setting.default), unit, allowed, setting.meaning


def _unit_and_range(setting: Setting) -> tuple[str, str]:
    if setting.is_number:
        return setting.unit, span(setting.least, setting.most)
    return "secret" if setting.secret else "", words(setting.choices)


# Keys of dependencies.toml: ranges from the models that validate, meanings from what they become.


def dependency_keys() -> Iterator[tuple[str, str]]:
    """Give a section for the keys of a dependency, and one for each of its tables."""
    schema = dependency_table().model_json_schema()
    properties, named = schema["properties"], schema["$defs"]
    meanings = meanings_in(Dependency)
    tables: dict[str, type[BaseModel]] = {**TABLES, **dict(_tables_of_features())}
    for keys in models_of_features().values():
        meanings |= meanings_in(keys)
    own = (_key_row(key, properties[key], named, meanings) for key in sorted(properties) if key not in tables)
    yield "### `[dependencies.<name>]`", table(_KEY_HEAD, own)
    for name, model in tables.items():
        rows = _key_rows(model, meanings_in(model) | meanings_in(_DOCUMENTED.get(name, model)))
        yield f"### `[dependencies.<name>.{name}]`", table(_KEY_HEAD, rows)


def _tables_of_features() -> Iterator[tuple[str, type[BaseModel]]]:
    """Give the tables among the keys of features, which may be left out."""
    for model in models_of_features().values():
        for key, info in model.model_fields.items():
            kinds = () if get_origin(info.annotation) is list else get_args(info.annotation)
            for kind in kinds or (info.annotation,):
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    yield key, kind


def presets() -> str:
    """Give the table of presets."""
    head = ("preset", "strategy", "attempts", "waits", "jitter", "longest `Retry-After`", "take it for")
    return table(
        head,
        (
            (
                f"`{name}`",
                preset.policy.strategy,
                str(preset.policy.max_attempts),
                _waits(preset.policy),
                preset.policy.jitter,
                f"{preset.policy.max_retry_after_seconds:g} s",
                preset.reason,
            )
            for name, preset in PRESETS.items()
        ),
    )


def meanings_in(documented: type) -> dict[str, str]:
    """Read the `Attributes:` of a class's docstring, name by name."""
    _, _, text = (inspect.getdoc(documented) or "").partition("Attributes:\n")
    parts = _ENTRY.split(text)
    return {
        name: _sentence(" ".join(meaning.split()))
        for name, meaning in zip(parts[1::2], parts[2::2], strict=True)
    }


def _sentence(text: str) -> str:
    return text if text.startswith("http") else text[:1].upper() + text[1:]


def _key_rows(model: type[BaseModel], meanings: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    schema = model.model_json_schema()
    for key, rule in schema["properties"].items():
        yield _key_row(key, rule, schema.get("$defs", {}), meanings)


def _key_row(
    key: str, rule: Mapping[str, Any], named: Mapping[str, Any], meanings: Mapping[str, str]
) -> tuple[str, ...]:
    given = next(iter(rule.get("anyOf", ())), rule)  # before `null`, or before a table of the same
    full = {**named.get(str(given.get("$ref", "")).rpartition("/")[2], {}), **given, **rule}
    unit = next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
    return f"`{key}`", shown(full.get("default")), unit, _range(full), meanings[key]


def _range(rule: Mapping[str, Any]) -> str:
    match rule.get("type"):
        case "boolean":
            return "`true`, `false`"
        case "integer" | "number":
            return span(rule.get("minimum"), rule.get("maximum"), above=rule.get("exclusiveMinimum"))
        case "array":
            return f"list, {span(None, rule['maxItems'])} entries" if "maxItems" in rule else "list"
        case "object":
            return "table"
        case _:
            return words(rule.get("enum", ()))


def _waits(policy: RetryPolicy) -> str:
    match policy.strategy:
        case "schedule":
            return ", ".join(f"{wait:g}" for wait in policy.schedule_seconds) + " s"
        case "fixed":
            return f"{policy.initial_seconds:g} s"
        case _ if policy.max_attempts == 1:
            return "-"
        case _:
            return f"{policy.initial_seconds:g} s, times {policy.factor:g}, up to {policy.max_seconds:g} s"


# What stands beside the app: the options and variables of the programs here.


class Described(Protocol):
    """A variable of the environment."""

    @property
    def name(self) -> str:
        """As the environment has it."""

    @property
    def default(self) -> str:
        """What holds when it is not set."""

    @property
    def meaning(self) -> str:
        """For a person."""


def programs() -> Iterator[tuple[str, ...]]:
    """Give a section for each program on one machine."""
    start = _subcommand(onebox.cli.build_parser(), "start")
    yield "### `python -m onebox start`", _options(start), _variables(onebox.environment.VARIABLES)
    yield '### `make run ARGS="..."`', _options(scripts.run.build_parser())
    yield "### `python -m retryctl`", _variables(retryctl.api.VARIABLES)


def _subcommand(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    found: argparse.ArgumentParser = next(each.choices[name] for each in _actions(parser) if each.choices)
    return found


def _options(parser: argparse.ArgumentParser) -> str:
    options = (each for each in _actions(parser) if "--help" not in each.option_strings)
    rows = (
        (
            f"`{each.option_strings[0]}`",
            "off" if each.nargs == 0 else shown(str(each.default or "")),
            _help(each),
        )
        for each in options
    )
    return table(("option", "default", "what it does"), rows)


def _actions(parser: argparse.ArgumentParser) -> list[Any]:
    return parser._actions  # noqa: SLF001 # argparse has no public list of its options


def _help(option: argparse.Action) -> str:
    """Give what `--help` says, without the default, which has a column of its own."""
    return re.sub(r" *\(default: .*?\)$", "", str(option.help))


def _variables(variables: Iterable[Described]) -> str:
    rows = ((f"`{each.name}`", shown(each.default), each.meaning) for each in variables)
    return table(("variable", "default", "what it is"), rows)


# How a value or a range is shown in a table.


def shown(value: Any) -> str:
    """Give a value as one would write it; nothing for what is empty."""
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float) and value.is_integer():
        return f"`{int(value)}`"
    return f"`{value}`"


def span(least: float | None, most: float | None, *, above: float | None = None) -> str:
    """Describe a range.

    Args:
        least: The smallest value; None when there is none.
        most: The largest value; None when there is none.
        above: A limit below which nothing is allowed, itself included; None when there is none.
    """
    if above is not None:
        return f"above {_number(above)}" + ("" if most is None else f", up to {_number(most)}")
    if least is None:
        return "" if most is None else f"up to {_number(most)}"
    return f"{_number(least)} or more" if most is None else f"{_number(least)} to {_number(most)}"


def words(choices: Iterable[str]) -> str:
    """List words to choose from."""
    return ", ".join(f"`{word}`" for word in choices)


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"
