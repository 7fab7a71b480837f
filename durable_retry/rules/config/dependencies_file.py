"""`dependencies.toml`: read, checked as a whole, resolved.

    config = parse_config(text, settings, function_timeout_seconds=300)   # raises ConfigError

Every mistake is reported at once, each with its key path. `[defaults]` and the dependency's own table are
merged key by key; then the preset that the merged `retry` names is the policy, with the keys that are written
out applied to it. Timeouts that the dependency does not write itself shrink to fit those that it does;
timeouts that it writes and that do not fit are mistakes. `${NAME}` is replaced by the app setting, and the
place is noted.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from durable_retry.base.documents import read_toml
from durable_retry.base.masking import MASKED, Masking
from durable_retry.base.names import Category
from durable_retry.base.text import Secret
from durable_retry.base.validation import (
    UNRESOLVED,
    UNRESOLVED_DETAIL,
    InvalidInputError,
    Problem,
    Strict,
    did_you_mean,
    pointer_of,
    pointer_parts,
    validated,
)
from durable_retry.plugins import why_absent
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.config.dependency import (
    NAME_OF_DEPENDENCY,
    NO_NAME,
    Auth,
    AuthTable,
    Dependency,
    IdempotencySettings,
    Webhook,
    defaults_table,
    dependency_table,
    models_of_features,
)
from durable_retry.rules.retry.policy import (
    fitted_timeouts,
    policy_from,
    policy_problems,
    policy_warnings,
    timeouts_problems,
)
from durable_retry.rules.retry.rules import AnswerRule


def lines_of(text: str, pointers: Iterable[str]) -> tuple[int, ...]:
    """Return the lines, from 1, of what JSON pointers point at, or of the nearest table around it.

    Args:
        text: What is no TOML has no pointers: the line of its mistake is returned.
    """
    try:
        read_toml(text)
    except ValueError as error:
        return tuple(_line_of_error(str(error), text) for _ in pointers)
    lines = _lines_by_pointer(text)
    return tuple(_line_of(pointer_parts(pointer), lines) for pointer in pointers)


def _line_of_error(error: str, text: str) -> int:
    """Return the line that an error of `tomllib` names, in its words, or 1."""
    if "(at end of document)" in error:
        return max(1, len(text.splitlines()))
    match = re.search(r"\(at line (\d+), column \d+\)", error)
    return 1 if match is None else int(match[1])


def _line_of(parts: Sequence[str], lines: Mapping[str, int]) -> int:
    around = (pointer_of(*parts[:length]) for length in range(len(parts), 0, -1))
    return next((lines[place] for place in around if place in lines), 1)


def _lines_by_pointer(text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    table: tuple[str, ...] = ()
    for number, statement, document in _statements(text):
        is_header = statement.lstrip().startswith("[")
        around = () if is_header else table
        for path in _paths(document):
            lines.setdefault(pointer_of(*around, *path), number)
        if is_header:
            table = max(_paths(document), key=len, default=())
    return lines


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield line, text and document of each header and assignment, which ends where it parses by itself."""
    lines = text.splitlines()
    begins = 0
    for number in range(1, len(lines) + 1):
        statement = "\n".join(lines[begins:number])
        try:
            document = read_toml(statement)
        except ValueError:
            continue
        yield begins + 1, statement, document
        begins = number


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key inside a value, outer ones first."""
    members = value.items() if isinstance(value, Mapping) else ()
    for name, inner in members:
        yield (*path, name)
        yield from _paths(inner, (*path, name))


_REFERENCE: Final = re.compile(r"\$\{([^${}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:\-]*")

type Path = tuple[str | int, ...]


@dataclass(slots=True)
class Expansion:
    """Replaces references throughout a document, and records where."""

    settings: Mapping[str, str]
    touched: dict[str, list[str]] = field(default_factory=dict)  # settings in a string, by its pointer
    problems: list[Problem] = field(default_factory=list)  # missing settings and broken references

    def expanded(self, value: Any, path: Path = ()) -> Any:
        """Return a copy of `value` with every reference replaced; a broken one is left as it is."""
        if isinstance(value, dict):
            return {name: self.expanded(item, (*path, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self.expanded(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, str) and "${" in value:
            return self._expanded_text(value, pointer_of(*path))
        return value

    def _expanded_text(self, text: str, pointer: str) -> str:
        self.touched[pointer] = [f"the app setting {name}" for name in _REFERENCE.findall(text)]
        if "${" in _REFERENCE.sub("", text):
            self.problems.append(Problem(pointer, "holds ${ without its }"))
            return text
        return _REFERENCE.sub(lambda match: self._value_of(match, pointer), text)

    def _value_of(self, match: re.Match[str], pointer: str) -> str:
        name = match[1]
        if not _NAME.fullmatch(name):
            self.problems.append(Problem(pointer, f'"${{{name}}}" does not name an app setting'))
        elif name not in self.settings:
            self.problems.append(Problem(pointer, f"the app setting {name} is missing"))
        elif self.settings[name].startswith(UNRESOLVED):
            self.problems.append(Problem(pointer, f"the app setting {name} {UNRESOLVED_DETAIL}"))
        return self.settings.get(name, match[0])


_ENDS_OF_KEYS: Final = ("key", "auth", "session", "signature")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_\-]+")


class ConfigError(InvalidInputError):
    """The file cannot be used; `problems` lists every mistake, `str()` shows one a line with its key path.

    Attributes:
        lines: The line of the file for each of the problems.
        config: What could be read, for further checks alone; None where that is no dependency.
    """

    most_listed = 10_000  # all of them, in practice: the file is the app's own
    file_name: str = "dependencies.toml"
    lines: tuple[int, ...] = ()
    config: "Config | None" = None

    def __str__(self) -> str:
        lines = [f"  {key_path(problem.pointer)}: {problem.detail}" for problem in self.problems]
        return "\n".join([f"{self.file_name} cannot be used:", *lines])


@dataclass(frozen=True, slots=True)
class Config:
    dependencies: Mapping[str, Dependency]  # by name
    warnings: tuple[Problem, ...] = ()  # what is allowed and may not be meant
    masking: Masking = MASKED  # the masking of what belongs to no dependency
    earlier_names: Mapping[str, Dependency] = field(init=False)  # dependencies by their `was`

    def __post_init__(self) -> None:
        by_earlier = {name: present for present in self.dependencies.values() for name in present.was}
        object.__setattr__(self, "earlier_names", by_earlier)


def parse_config(
    text: str,
    settings: Mapping[str, str],
    *,
    function_timeout_seconds: float | None = None,
    file_name: str = ConfigError.file_name,
    problems_here: Callable[[Config], Iterable[Problem]] = lambda _config: (),
) -> Config:
    """Read the file's text, with app settings in place of `${NAME}`; ConfigError lists every mistake.

    Args:
        problems_here: Lists what only the app that runs can find, also in a file that has other mistakes.
    """
    reader = _Reader(settings, function_timeout_seconds)
    config = Config(reader.read(text), tuple(reader.warnings), reader.masking)
    if problems := [*reader.problems, *problems_here(config)]:
        error = ConfigError(problems)
        error.file_name = file_name
        error.config = config if config.dependencies else None
        error.lines = lines_of(text, [problem.pointer for problem in error.problems])
        raise error
    return config


def key_path(pointer: str) -> str:
    """Return a JSON pointer as a TOML key path: `dependencies.payments.retry.max_attempts`."""
    keys = [part if _PLAIN_KEY.fullmatch(part) else f'"{part}"' for part in pointer_parts(pointer)]
    return ".".join(keys) or "the file"


type _Place = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """The valid keys of a table as written, and those with mistakes.

    Attributes:
        broken: Their names, and as pairs those of the keys in a table inside.
    """

    written: Mapping[str, Any]
    broken: frozenset[_Place]


def _merged(defaults: _Table, own: _Table, key: str) -> Any:
    """Return a table with the keys of both, where the dependency's own win; any other value is its own.

    A dependency with a credential of its own takes only the header's name from `auth` of the defaults.
    """
    values = [table.written[key] for table in (defaults, own) if key in table.written]
    if key == "auth" and len(values) > 1 and values[1].keys() - {"header"}:
        values[0] = {name: value for name, value in values[0].items() if name == "header"}
    if all(isinstance(value, Mapping) for value in values):
        return {name: value for table in values for name, value in table.items()}
    return values[-1]


_CHECKED_AS_A_WHOLE: Final = ("timeouts", "retry")
"""Tables whose keys must fit each other: each key without a mistake is kept for that."""


def _without_broken(table: Any, name: str, broken: AbstractSet[_Place]) -> dict[str, Any]:
    """Return the keys of a table without mistakes; none where it is no table."""
    keys = table.items() if isinstance(table, Mapping) else ()
    return {key: value for key, value in keys if (name, key) not in broken}


class _Reader:
    """Goes through the file once, collecting mistakes instead of stopping at the first."""

    def __init__(self, settings: Mapping[str, str], function_timeout_seconds: float | None) -> None:
        self.expansion = Expansion(settings)
        self.function_timeout_seconds = function_timeout_seconds
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.masking = MASKED

    def read(self, text: str) -> dict[str, Dependency]:
        try:
            document = self.expansion.expanded(read_toml(text))
        except ValueError as error:
            self.problems.append(Problem("", f"is not TOML: {error}"))
            return {}
        self.problems.extend(self.expansion.problems)
        top_level = ["defaults", "dependencies"]
        for name in document.keys() - set(top_level):
            guess = did_you_mean(name, top_level)
            self.problems.append(Problem(pointer_of(name), f"is not a known table{guess}"))
        defaults = self._read_table(defaults_table(), document.get("defaults", {}), ("defaults",))
        self.masking = Masking(**defaults.written.get("masking", {}))
        tables = document.get("dependencies", {})
        if not isinstance(tables, dict):
            self.problems.append(Problem("/dependencies", "must be a table"))
            return {}
        return self._read_dependencies(defaults, tables)

    def _read_dependencies(self, defaults: _Table, tables: Mapping[str, Any]) -> dict[str, Dependency]:
        dependencies = {}
        for name, table in tables.items():
            place = ("dependencies", name)
            if not NAME_OF_DEPENDENCY.fullmatch(name):
                self.problems.append(Problem(pointer_of(*place), NO_NAME))
            dependencies[name] = self._read_dependency(
                name, defaults, self._read_table(dependency_table(), table, place)
            )
        self._check_earlier_names(dependencies)
        return dependencies

    def _check_earlier_names(self, dependencies: Mapping[str, Dependency]) -> None:
        taken = dict.fromkeys(dependencies, "is a dependency of its own")
        for name, dependency in dependencies.items():
            for index, earlier in enumerate(dependency.was):
                if earlier in taken:
                    place = pointer_of("dependencies", name, "was", index)
                    self.problems.append(Problem(place, f"{earlier} {taken[earlier]}"))
                taken.setdefault(earlier, f"is an earlier name of {name}, too")

    def _of_settings(self, problem: Problem) -> Problem:
        """Return a mistake that also says which settings the string is made of."""
        settings = self.expansion.touched.get(problem.pointer)
        if settings is None:
            return problem
        return Problem(problem.pointer, f"{problem.detail} ({', '.join(settings)})")

    def _read_table(self, model: type[Strict], table: Any, place: tuple[str, ...]) -> _Table:
        """Return what a table holds and note its mistakes; keys with mistakes are left out."""
        try:
            return _Table(validated(model, table).written(), frozenset())
        except InvalidInputError as error:
            prefix, reported = pointer_of(*place), {problem.pointer for problem in self.expansion.problems}
            fresh = [
                self._of_settings(Problem(prefix + problem.pointer, _in_toml(problem.detail)))
                for problem in error.problems
            ]
            self.problems.extend(problem for problem in fresh if problem.pointer not in reported)
            places = [pointer_parts(problem.pointer) for problem in error.problems]
        if [] in places:
            return _Table({}, frozenset(dependency_table().model_fields))
        broken = frozenset(name for name, *_ in places) | {tuple(parts[:2]) for parts in places}
        # Validated again without the broken keys, so that one mistake hides no other.
        known = {info.alias or name for name, info in model.model_fields.items()}
        sound = {
            key: _without_broken(value, key, broken) if key in _CHECKED_AS_A_WHOLE else value
            for key, value in table.items()
            if key in known and (key not in broken or key in _CHECKED_AS_A_WHOLE)
        }
        return _Table(validated(model, sound).written(), broken)

    def _read_dependency(self, name: str, defaults: _Table, own: _Table) -> Dependency:
        tables = {key: _merged(defaults, own, key) for key in defaults_table().model_fields}
        timeouts = fitted_timeouts(tables["timeouts"], own.written.get("timeouts", {}))
        policy = policy_from(tables["retry"])
        own_keys = {(table, key) for table in _CHECKED_AS_A_WHOLE for key in own.written.get(table, {})}
        broken = defaults.broken - own_keys | own.broken
        wrong = [("retry", *problem) for problem in policy_problems(policy)]
        if ("timeouts", "attempt_seconds") not in broken:  # the others are compared with it
            problems = timeouts_problems(timeouts, self.function_timeout_seconds)
            wrong.extend(("timeouts", *problem) for problem in problems)
        self.warnings.extend(
            Problem(pointer_of("dependencies", name, "retry", key), detail)
            for key, detail in policy_warnings(policy, timeouts.deadline_seconds)
        )
        wrong.extend(
            (table, key, absent)
            for table, key in (("circuit", "by"), ("webhook", "secrets"))
            if tables[table].get(key) and (absent := why_absent(f"{table}.{key}"))
        )
        self.problems.extend(
            Problem(pointer_of("dependencies", name, table, key), detail)
            for table, key, detail in wrong
            if (table, key) not in broken
        )
        # One with a mistake is there: no fallback to it is to be called one without an address.
        missing_url = "http://broken" if "base_url" in broken else ""
        masking = Masking(**tables["masking"])
        secret = {header for header in tables["headers"] if self._is_secret(name, header, masking)}
        of_app = {header for header in tables["headers"] if self._is_of_app(name, header)}
        return Dependency(
            name=name,
            base_url=_with_lower_scheme(own.written.get("base_url", missing_url).rstrip("/")),
            headers={
                header: Secret(value) if header in secret else value
                for header, value in tables["headers"].items()
            },
            fixed_headers=frozenset(secret | of_app),
            auth=None if "auth" in broken else self._read_auth(name, tables["auth"]),
            timeouts=timeouts,
            retry=policy,
            circuit=CircuitSettings(**tables["circuit"]),
            retry_budget=RetryBudgetSettings(**tables["retry_budget"]),
            idempotency=IdempotencySettings(**tables["idempotency"]),
            classify={name: _rule_of(name, rule) for name, rule in tables["classify"].items()},
            webhook=Webhook(tuple(Secret(text) for text in tables["webhook"].get("secrets", ()))),
            masking=masking,
            priority=own.written.get("priority", "normal"),
            was=tuple(own.written.get("was", ())),
            of_features=self._read_features(name, tables, defaults, own),
        )

    def _read_features(
        self, name: str, tables: Mapping[str, Any], defaults: _Table, own: _Table
    ) -> dict[str, Strict]:
        """Return what the table has of features, by their names; without those that have a mistake."""
        read: dict[str, Strict] = {}
        for feature, model in models_of_features().items():
            keys = model.model_fields.keys()
            written = {key: tables[key] for key in keys & (defaults.written.keys() | own.written.keys())}
            if not written or keys & (defaults.broken | own.broken):
                continue
            try:
                read[feature] = validated(model, written)
            except InvalidInputError as error:
                self.problems.extend(
                    problem.below(pointer_of("dependencies", name)) for problem in error.problems
                )
        return read

    def _is_of_app(self, name: str, header: str) -> bool:
        """Return whether an app setting was inserted into a header's value."""
        places = (("defaults", "headers"), ("dependencies", name, "headers"))
        return any(pointer_of(*place, header) in self.expansion.touched for place in places)

    def _is_secret(self, name: str, header: str, masking: Masking) -> bool:
        """Return whether a header is a credential: by a masked name, or a key's name and a setting as value.

        Other values from settings, such as a tenant's name, are not masked: answers may quote them.
        """
        is_key = header.lower().endswith(_ENDS_OF_KEYS) and self._is_of_app(name, header)
        return is_key or masking.hides(header)

    def _read_auth(self, name: str, auth: Mapping[str, Any]) -> Auth | None:
        if not auth:
            return None
        value, is_of_feature = auth.get("value"), auth.keys() - AuthTable.model_fields.keys()
        if value is None and not is_of_feature:
            self.problems.append(Problem(pointer_of("dependencies", name, "auth", "value"), "is required"))
        return Auth(auth.get("header", "Authorization"), value)


def _rule_of(name: str, rule: str | Mapping[str, Any]) -> Category | AnswerRule:
    if isinstance(rule, str):
        return Category(rule)
    status = int(name) if name.isdecimal() else None
    return AnswerRule(**{"status": status, **rule, "category": Category(rule["category"])})


def _with_lower_scheme(url: str) -> str:
    # So that code may compare base URLs: a scheme in capitals is the same one (RFC 3986, section 3.1).
    scheme, separator, rest = url.partition("://")
    return f"{scheme.lower()}{separator}{rest}"


def _in_toml(detail: str) -> str:
    return detail.replace("an object", "a table")
