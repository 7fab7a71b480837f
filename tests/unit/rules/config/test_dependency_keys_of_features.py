from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Self

import pytest
from pydantic import TypeAdapter, model_validator

from durable_retry.base.validation import Problem, Strict, refuse
from durable_retry.plugins import Plugin
from durable_retry.rules.config import dependency as of_dependency
from durable_retry.rules.config.dependencies_file import ConfigError, key_path, parse_config
from durable_retry.rules.config.dependency import Dependency, Targets
from durable_retry.rules.operations import operation as of_operation
from durable_retry.rules.operations import request as of_request
from durable_retry.rules.operations.envelope import parse_envelope
from durable_retry.rules.operations.keys import ScopedKey
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.request import Members, OperationRequest, Part
from durable_retry.rules.operations.submission import Naming, read_operation
from tests.support.builders import NOON
from tests.support.mistakes import pointers_of


class EchoTable(Strict):
    """A table."""

    least: int = 0
    most: int = 9

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise refuse("least is above most")
        return self


class EchoKeys(Strict):
    """The keys of a dependency.

    Attributes:
        echo: What comes back.
        loud: Whether it is loud.
    """

    echo: EchoTable | None = None
    loud: bool = False


class _Echo(Members):
    def part_of(self, members: Any, _target: str, dependency: Dependency, _now: datetime) -> Part | None:
        assert members is None
        return Part(dependency.of_features["echo"].model_dump())

    def misfits(self, request: OperationRequest, _dependency: Dependency) -> Iterable[Problem]:
        if request.request is not None and request.request.path == "/mute":
            yield Problem("/request/path", "gives no echo")


class PlainKeys(Strict):
    """The keys of a dependency.

    Attributes:
        plain: Changes nothing.
    """

    plain: bool = False


class SilentKeys(Strict):
    """The keys of a dependency.

    Attributes:
        silent: Changes nothing that an operation keeps.
    """

    silent: bool = False


MEMBERS = _Echo()
PLAIN = Members()
PLUGINS = (
    Plugin(name="echo", dependency=f"{__name__}:EchoKeys", members=f"{__name__}:MEMBERS"),
    Plugin(name="plain", dependency=f"{__name__}:PlainKeys", members=f"{__name__}:PLAIN"),
    Plugin(name="silent", dependency=f"{__name__}:SilentKeys"),
)
CACHES = (
    of_dependency.models_of_features,
    of_dependency.defaults_table,
    of_dependency.dependency_table,
    of_request.members_by_feature,
    of_operation._beginning_at_once,
)


@pytest.fixture(autouse=True)
def _feature(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (of_dependency, of_request, of_operation):
        monkeypatch.setattr(module, "plugins", lambda: PLUGINS)
    for cached in CACHES:
        cached.cache_clear()
    yield
    for cached in CACHES:
        cached.cache_clear()


URL = 'base_url = "http://a.example"'
WITH_DEFAULTS = f"[defaults.echo]\n%s\n[dependencies.a]\n{URL}\n"


def read(text: str) -> dict[str, Dependency]:
    return dict(parse_config(text, {}).dependencies)


def problems_of(text: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        parse_config(text, {})
    return {key_path(problem.pointer): problem.detail for problem in refused.value.problems}


def test_a_dependency_without_its_keys_has_nothing_of_a_feature() -> None:
    assert read(f"[dependencies.a]\n{URL}")["a"].of_features == {}


def test_keys_and_tables_stand_among_the_others_and_in_the_defaults() -> None:
    text = (
        f"[defaults.echo]\nleast = 3\n[dependencies.a]\n{URL}\nloud = true\n[dependencies.a.echo]\nmost = 5"
    )
    assert read(text)["a"].of_features == {"echo": EchoKeys(echo=EchoTable(least=3, most=5), loud=True)}


def test_clients_see_the_keys_with_their_defaults_among_the_others() -> None:
    dependency = read(f"[dependencies.a]\n{URL}\nloud = true")["a"]
    shown = TypeAdapter(Dependency).dump_python(dependency, mode="json")
    assert (shown["name"], shown["loud"], shown["echo"]) == ("a", True, None)


def test_every_mistake_is_told_with_its_place() -> None:
    wrong = "[dependencies.b.echo]\nleast = 7\nmost = 5"
    text = f"[dependencies.a]\n{URL}\nloud = 1\n[dependencies.b]\n{URL}\n{wrong}"
    assert problems_of(text) == {
        "dependencies.a.loud": "must be true or false",
        "dependencies.b.echo": "least is above most",
    }


def test_what_a_file_says_in_two_tables_is_checked_together() -> None:
    text = WITH_DEFAULTS % "least = 7" + "[dependencies.a.echo]\nmost = 5"
    assert problems_of(text) == {"dependencies.a.echo": "least is above most"}


def submitted(keys: str, path: str = "/charges") -> OperationInput:
    targets = Targets(read(f"[dependencies.payments]\n{URL}\n{keys}"), {}, ())
    body = {"dependency": "payments", "request": {"path": path}}
    naming = Naming(own=ScopedKey("test", "k"))
    return read_operation(parse_envelope(body), naming, targets, source="http", now=NOON)


def test_an_operation_keeps_a_part_where_its_dependency_has_keys_of_the_feature() -> None:
    assert submitted("").parts is None
    kept = submitted("loud = true")
    assert kept.parts == {"echo": {"echo": None, "loud": True}}
    assert kept.begins_at_once


def test_a_feature_may_have_keys_that_leave_operations_and_requests_as_they_are() -> None:
    assert submitted("plain = true\nsilent = true", path="/mute").parts is None
    dependency = read(f"[dependencies.a]\n{URL}\nplain = true\nsilent = true")["a"]
    assert list(of_request.unmet_keys(dependency, Targets({}, {}, ()))) == []
    assert PLAIN.commits({}, is_recovered=False)


def test_a_request_is_checked_against_the_keys() -> None:
    assert submitted("", path="/mute").parts is None
    assert pointers_of(submitted, "loud = true", path="/mute") == ["/request/path"]
