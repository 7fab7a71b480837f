"""App settings: environment variables, completed from local.settings.json, and those that onebox reads."""

import json
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onebox import CannotStartError
from onebox.numbers import plain_number

DEVELOPMENT_STORAGE = "UseDevelopmentStorage=true"
HIGHEST_PORT: Final = 65_535

_REFERENCE = re.compile(r"%([^%]+)%")
_STRING: Final = r'"(?:\\.|[^"\\])*"'
_COMMENT: Final = re.compile(_STRING + r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA: Final = re.compile(_STRING + r"|,(?=\s*[}\]])", re.DOTALL)
# The host looks a connection up under this prefix first, so that "Storage" finds AzureWebJobsStorage.
_CONNECTION_PREFIX = "AzureWebJobs"
_MOST_PROCESSES: Final = 10  # as in the host
# "Naming queues and metadata", Microsoft Learn.
_QUEUE_NAME: Final = re.compile(r"(?=.{3,63}\Z)[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; an empty one counts as not set.

    Attributes:
        name: As the environment has it.
        meaning: For a person, one sentence.
        default: The value when it is not set; "" for none.
    """

    name: str
    meaning: str
    default: str = ""

    def get(self, environ: Mapping[str, str]) -> str:
        """Return the value, or the default."""
        return environ.get(self.name) or self.default


STORAGE: Final = Variable(
    "AzureWebJobsStorage",
    "Connection string of the storage account; `UseDevelopmentStorage=true` uses or starts Azurite.",
)
SCRIPT: Final = Variable("PYTHON_SCRIPT_FILE_NAME", "The file that declares the app.", "function_app.py")
BLOB_PORT: Final = Variable("AZURITE_BLOB_PORT", "Azurite's port for blobs.", "10000")
QUEUE_PORT: Final = Variable("AZURITE_QUEUE_PORT", "Azurite's port for queues.", "10001")
TABLE_PORT: Final = Variable("AZURITE_TABLE_PORT", "Azurite's port for tables.", "10002")
ACCOUNTS: Final = Variable(
    "AZURITE_ACCOUNTS",
    "`devstoreaccount1:KEY`, the key of Azurite's account in base64. Not set: a random key for each data "
    "folder; with `--join-storage` Azurite's well-known one.",
)
BODY_LIMIT: Final = Variable(
    "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT", "The largest body of a request that is taken, in bytes.", "104857600"
)
QUEUES: Final = Variable(
    "ONEBOX_QUEUES",
    "Storage queues that are created at the start, with spaces between, as infrastructure does in Azure.",
)
SEMANTICS: Final = Variable(
    "ONEBOX_SEMANTICS",
    "`azure` gives the task hub the weaker terms of Azure Storage, by chance; `azure:7` with the seed 7. "
    "`,died=0.05`, `,unanswered=0.01` and `,hidden=60` may follow ([terms](onebox.md#azures-weaker-terms)).",
)
PROCESSES: Final = Variable(
    "FUNCTIONS_WORKER_PROCESS_COUNT",
    "How many child processes run the functions, up to 10; 0: onebox's own process does.",
    "1",
)
CACHES: Final = Variable(
    "XDG_CACHE_HOME", "Where Azurite is installed once per user; `~/.cache` when it is not set."
)
NO_COLOR: Final = Variable("NO_COLOR", "Set to anything: the log has no colours (no-color.org).")

VARIABLES: Final = (
    STORAGE,
    SCRIPT,
    BLOB_PORT,
    QUEUE_PORT,
    TABLE_PORT,
    ACCOUNTS,
    BODY_LIMIT,
    QUEUES,
    SEMANTICS,
    PROCESSES,
    CACHES,
    NO_COLOR,
)


class MissingSettingError(CannotStartError):
    """A binding names an app setting that does not exist."""


def load_local_settings(path: Path, environment: MutableMapping[str, str] | None = None) -> None:
    """Put the `Values` of local.settings.json into the environment; a variable that is set keeps its value.

    Args:
        path: The file; a missing one changes nothing.
        environment: None means the process's own.

    Raises:
        CannotStartError: It is not JSON, is encrypted, or a value is not text.
    """
    target = os.environ if environment is None else environment
    for name, value in _values(path).items():
        if not isinstance(value, str):
            raise CannotStartError(f"{path.name}: Values.{name} must be text in quotes")
        try:
            target.setdefault(name, value)
        except (ValueError, OSError):  # a name with "=" or without a letter, a NUL, half a surrogate pair
            raise CannotStartError(f"{path.name}: Values.{name} cannot be an environment variable") from None


def _values(path: Path) -> Mapping[str, Any]:
    try:
        content = read_settings_file(path)
    except FileNotFoundError:
        return {}
    if not isinstance(content, dict) or not isinstance(content.get("Values", {}), dict):
        raise CannotStartError(f'{path.name} must be an object with a table "Values"')
    if content.get("IsEncrypted") is True:
        raise CannotStartError(f"{path.name} is encrypted; run `func settings decrypt` first")
    values: Mapping[str, Any] = content.get("Values", {})
    return values


def read_settings_file(path: Path) -> Any:
    """Return the content of a JSON file that a person writes: with comments and last commas, as in the host.

    Raises:
        FileNotFoundError: It is not there.
        CannotStartError: It cannot be read, or is not JSON.
    """
    try:
        text = _COMMENT.sub(_blank, path.read_text(encoding="utf-8-sig"))
        return json.loads(_LAST_COMMA.sub(_blank, text))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CannotStartError(f"{path.name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CannotStartError(f"{path.name} is not UTF-8 text") from None
    except json.JSONDecodeError as mistake:
        raise CannotStartError(f"{path.name} is not JSON: {mistake}") from None


def _blank(match: re.Match[str]) -> str:
    """Return a string as it is, anything else as blanks: errors still name the right line and column."""
    found = match[0]
    return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)


def process_count(environ: Mapping[str, str]) -> int:
    """Return how many worker processes the app asks for.

    Raises:
        CannotStartError: The app setting is not a whole number from 0 to 10.
    """
    text = PROCESSES.get(environ)
    number = plain_number(text)
    if number is None or number > _MOST_PROCESSES:
        raise CannotStartError(f"app setting {PROCESSES.name} must be a number from 0 to 10, not {text!r}")
    return number


def queue_names(environ: Mapping[str, str]) -> list[str]:
    """Return the storage queues that are to be created.

    Raises:
        CannotStartError: The app setting has a name that Azure Storage does not take.
    """
    names = QUEUES.get(environ).split()
    for name in names:
        if not _QUEUE_NAME.fullmatch(name):
            raise CannotStartError(
                f"app setting {QUEUES.name} must be names of 3 to 63 lower-case letters, digits and single "
                f"hyphens between them, not {name!r}"
            )
    return names


class AppSettings:
    """Reads app settings the way bindings refer to them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def get(self, name: str) -> str | None:
        """Return a setting's value; None when it is not there."""
        return self._values.get(name)

    def expand(self, text: str, *, where: str) -> str:
        """Replace every `%NAME%` by the setting of that name.

        Args:
            text: As written in a binding.
            where: Names the binding in an error, like "function x, queue_name".

        Raises:
            MissingSettingError: A setting is not there.
        """

        def value_of(match: re.Match[str]) -> str:
            value = self._values.get(match[1])
            if value is None:
                raise MissingSettingError(f"{where}: app setting {match[1]} is not set, see {text!r}")
            return value

        return _REFERENCE.sub(value_of, text)

    def connection(self, name: str | None, *, where: str) -> str:
        """Return the connection string that a binding's `connection` means.

        Args:
            name: The setting, with or without the prefix AzureWebJobs; None or "" means AzureWebJobsStorage.
            where: Names the binding in an error.

        Raises:
            MissingSettingError: The setting is not there or is empty.
        """
        wanted = name or STORAGE.name
        value = self._values.get(_CONNECTION_PREFIX + wanted) or self._values.get(wanted)
        if not value:
            raise MissingSettingError(f"{where}: {self._without_connection(wanted)}")
        return value

    def _without_connection(self, wanted: str) -> str:
        asking = (f"{wanted}__".lower(), f"{_CONNECTION_PREFIX}{wanted}__".lower())
        identity = next((name for name in self._values if name.lower().startswith(asking)), None)
        if identity is None:
            return (
                f"app setting {wanted} holds no connection string: "
                f"set one in local.settings.json, such as {DEVELOPMENT_STORAGE}"
            )
        return (
            f"{identity} asks for an identity, and onebox has none: "
            f"set {wanted} to a connection string, such as {DEVELOPMENT_STORAGE}"
        )
