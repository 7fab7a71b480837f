"""What stands beside the app: host.json, and the options and variables of the programs here."""

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import onebox.cli
import onebox.environment
import retryctl.api
import scripts.run
from durable_retry.settings.app import APP_ROOT
from scripts.settings_reference.markdown import shown, table

REASONS: Final[Mapping[str, str]] = {
    "version": "the only one",
    "functionTimeout": ("the longest run of one function; an attempt may take at most 10 s less"),
    "extensionBundle.id": "the extensions with the triggers",
    "extensionBundle.version": "the bundle whose Durable extension speaks gRPC",
    "extensions.http.routePrefix": "the prefix of every route",
    "extensions.queues.messageEncoding": "plain text reaches the function, which decodes base64 itself",
    "extensions.queues.batchSize": "messages fetched at once by one instance",
    "extensions.queues.newBatchThreshold": "more are fetched when at most this many still run",
    "extensions.queues.maxDequeueCount": "runs before a message goes to the poison queue",
    "extensions.queues.maxPollingInterval": "longest pause before an idle queue is read again",
    "extensions.queues.visibilityTimeout": "from the end of a failed run until the next",
    "extensions.durableTask.hubName": "name of the task hub in the storage account; each app needs its own",
    "extensions.durableTask.storageProvider.type": "backend of the task hub",
    "logging.logLevel.default": "the least severe log lines that are kept",
    "logging.logLevel.Host.Triggers.DurableTask": "otherwise the extension logs every turn",
    "logging.logLevel.Azure.Core": "otherwise the storage SDK logs every request",
}
"""Why each key of host.json is set."""

PLATFORM: Final[Mapping[str, str]] = {
    "FUNCTIONS_WORKER_RUNTIME": "which worker the host starts; `python`",
    "FLAKY_TARGET_URL": "URL of the shipped entry `flaky` of dependencies.toml; `make run` sets it",
    "PYTHON_THREADPOOL_THREAD_COUNT": "threads for functions that are a plain `def`, in the Python worker",
}
"""App settings that files of this repository name and its code does not read."""


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


def host_json() -> str:
    """Give the keys of host.json with the value that this app sets."""
    content = json.loads((APP_ROOT / "host.json").read_text(encoding="utf-8"))
    rows = ((f"`{key}`", shown(value), REASONS[key]) for key, value in keys_in(content))
    return table(("key", "value", "why"), rows)


def keys_in(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give each value with the path of its keys."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from keys_in(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def platform_settings() -> str:
    """Give the table of app settings that others read."""
    return table(("app setting", "what it is"), ((f"`{name}`", text) for name, text in PLATFORM.items()))


def programs() -> Iterator[str]:
    """Give a section for each program."""
    start = _subcommand(onebox.cli.build_parser(), "start")
    yield "### `python -m onebox start`"
    yield _options(start)
    yield _variables(onebox.environment.VARIABLES)
    yield '### `make run ARGS="..."`'
    yield _options(scripts.run.build_parser())
    yield "### `python -m retryctl`"
    yield _variables(retryctl.api.VARIABLES)


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
    return parser._actions  # noqa: SLF001 # argparse tells its options to nobody but its own help


def _help(option: argparse.Action) -> str:
    """Give what `--help` says, without the default, which has a column of its own."""
    return re.sub(r" *\(default: .*?\)$", "", str(option.help))


def _variables(variables: Iterable[Described]) -> str:
    rows = ((f"`{each.name}`", shown(each.default), each.meaning) for each in variables)
    return table(("variable", "default", "what it is"), rows)
