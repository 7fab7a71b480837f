import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from durable_retry.features.openapi.routes import described
from retryctl.commands import Ask, Command, Listing, Watch
from retryctl.options import OPTIONS, Option, options_of
from retryctl.parser import COMMANDS

API: Final = described()
BY_HAND: Final = {
    "find": "GET search",
    "dead-letters list": "GET dead-letters",
    "dead-letters note": "POST dead-letters/{id}/notes",
    "saga show": "GET sagas/{id}",
    "health": "GET health",
    "check-replay": "GET histories",
    "doctor": "POST diagnoses",
    "top": "GET overview",
}
"""Routes of the commands that have a function of their own."""
OF_RETRYCTL: Final = {
    *("limit", "only_ids", "watch", "wait", "file", "words", "all", "minutes", "every"),
    *("url", "master_key", "part_seconds", "stuck", "shell", "app", "histories", "save"),
}
"""What is not sent under its name."""


def route_of(command: Command) -> str:
    run = command.run
    if isinstance(run, Ask):
        return run.route
    if isinstance(run, Listing):
        return f"GET {run.path}"
    return f"GET {run.path}/{{id}}" if isinstance(run, Watch) else BY_HAND[command.name]


def without_names(route: str) -> str:
    return re.sub(r"{\w+}", "{}", route)


ROUTES: Final = {
    without_names(f"{method.upper()} {path.removeprefix('/api/')}"): operation
    for path, operations in API["paths"].items()
    for method, operation in operations.items()
}


def members(schema: Any) -> Iterator[tuple[str, Any]]:
    """Give the members of a body and of what stands in it, each with its schema."""
    if "$ref" in schema:
        schema = API["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for name, member in schema.get("properties", {}).items():
        yield name, member
        yield from members(member)
    for way in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from members(way)


def taken_by(route: str) -> dict[str, Any]:
    """What a route takes by its path, its query or its body, with the schema of each."""
    operation = ROUTES[without_names(route)]
    taken = {each["name"]: each["schema"] for each in operation.get("parameters", ()) if "name" in each}
    for content in operation.get("requestBody", {"content": {}})["content"].values():
        taken |= dict(members(content["schema"]))
    return taken


def options(command: Command) -> Iterator[tuple[str, Option]]:
    for each in options_of(command.takes):
        for option in each if isinstance(each, tuple) else (each,):
            yield option.dest, option


ASKING: Final = [command for command in COMMANDS if command.name not in {"completion", "mcp"}]


@pytest.mark.parametrize("command", ASKING, ids=lambda command: command.name)
def test_a_command_asks_a_route_for_what_it_takes(command: Command) -> None:
    route = route_of(command)
    in_path = set(re.findall(r"{(\w+)}", route))
    sent = {name for name, _ in options(command)} - OF_RETRYCTL - in_path
    assert sent <= taken_by(route).keys()


ASKS: Final = [command.run for command in ASKING if isinstance(command.run, Ask)]


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.route)
def test_the_member_by_which_an_answer_is_known_is_in_each_of_its_route(ask: Ask) -> None:
    answers = ROUTES[without_names(ask.route)]["responses"]
    schemas = [answers[status]["content"]["application/json"]["schema"] for status in answers if status < "3"]
    models = [API["components"]["schemas"][schema["$ref"].rpartition("/")[2]] for schema in schemas]
    assert models
    assert all(ask.member in model["required"] for model in models)


def words_of(schema: Any) -> set[str]:
    if "$ref" in schema:
        schema = API["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return {*schema.get("enum", ()), *(word for way in schema.get("anyOf", ()) for word in words_of(way))}


CHOICES: Final = [
    (command, name, option)
    for command in ASKING
    for name, option in options(command)
    if "choices" in option.more and name not in OF_RETRYCTL
]


@pytest.mark.parametrize(("command", "name", "option"), CHOICES)
def test_a_choice_has_the_words_of_the_api(command: Command, name: str, option: Option) -> None:
    described_words = words_of(taken_by(route_of(command))[name])
    assert {word.replace("-", "_") for word in option.more["choices"]} == described_words


def test_no_option_is_left_over() -> None:
    used = " ".join(
        [command.takes for command in COMMANDS] + [each for each in OPTIONS.values() if isinstance(each, str)]
    )
    assert set(used.split()) == OPTIONS.keys()
