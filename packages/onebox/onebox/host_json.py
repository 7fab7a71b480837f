"""host.json: the settings of the host, as far as onebox acts on them.

Key names are compared without regard to case, as the host's configuration does. A key that the host does not
know is a mistake worth stopping for: the host would ignore it in silence. As in the host, an app setting such
as `AzureFunctionsJobHost__extensions__queues__batchSize` overrides the key of that path.
Source of names and defaults: "host.json reference for Azure Functions 2.x and later", Microsoft Learn.
"""

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from onebox import CannotStartError
from onebox.durable_task import DurableTask
from onebox.environment import read_settings_file
from onebox.host_section import Limit, Section, Timeout, TimeSpan

_LEAST_POLLING = timedelta(milliseconds=100)
_OVERRIDE: Final = "azurefunctionsjobhost"


class Queues(Section):
    """How storage-queue triggers poll and retry.

    Attributes:
        batch_size: Messages fetched at once, 1 to 32.
        new_batch_threshold: The next batch is fetched when no more than this many still run; None is half of
            `batch_size` (the host multiplies by the cores of its plan; one machine counts as one core).
        max_polling_interval: Longest pause between polls of an idle queue, at least 100 ms. The default is a
            minute in Azure; 2 s here, as in the development settings of the WebJobs SDK.
        visibility_timeout: How long after the end of a failed run the message is seen again.
        max_dequeue_count: Runs before a message goes to the poison queue, at least 1.
        message_encoding: How the text of a message is wrapped.
    """

    batch_size: int = Field(16, ge=1, le=32)
    new_batch_threshold: int | None = Field(None, ge=0)
    max_polling_interval: Annotated[TimeSpan, Field(ge=_LEAST_POLLING)] = timedelta(seconds=2)
    visibility_timeout: TimeSpan = timedelta()
    max_dequeue_count: int = Field(5, ge=1)
    message_encoding: Literal["base64", "none"] = "base64"

    @property
    def fetch_at_most_running(self) -> int:
        """How many runs may still go on when the next batch is fetched."""
        return self.batch_size // 2 if self.new_batch_threshold is None else self.new_batch_threshold


class Http(Section):
    """How HTTP triggers are reached.

    Attributes:
        route_prefix: What every route of a function begins with; empty for none.
        max_outstanding_requests: Requests accepted and not yet answered; more are 429. None for no limit, the
            default, as in a dedicated plan.
        max_concurrent_requests: Functions that run at once; further requests wait. None for no limit.
        custom_headers: Added to every answer of a function.
    """

    route_prefix: str = "api"
    max_outstanding_requests: Limit = None
    max_concurrent_requests: Limit = None
    dynamic_throttles_enabled: bool = False
    hsts: Any = None
    custom_headers: dict[str, str] = Field(default_factory=dict)


class Extensions(BaseModel):
    """One table per extension; those that onebox does not run are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    http: Http = Field(default_factory=Http)
    queues: Queues = Field(default_factory=Queues)
    durable_task: DurableTask = Field(default_factory=DurableTask, alias="durableTask")

    @model_validator(mode="before")
    @classmethod
    def _fold_key_case(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        names = {"http": "http", "queues": "queues", "durabletask": "durableTask"}
        return {names.get(key.lower(), key): item for key, item in value.items()}


class HostJson(Section):
    """The whole file.

    Attributes:
        version: Always "2.0".
        function_timeout: How long one invocation may take; None for no limit.
    """

    version: Literal["2.0"] = "2.0"
    function_timeout: Timeout = timedelta(minutes=30)
    extensions: Extensions = Field(default_factory=Extensions)
    aggregator: Any = None
    application_insights: Any = None
    concurrency: Any = None
    custom_handler: Any = None
    extension_bundle: Any = None
    functions: Any = None
    health_monitor: Any = None
    logging: Any = None
    managed_dependency: Any = None
    retry: Any = None
    send_canceled_invocations_to_worker: Any = None
    singleton: Any = None
    telemetry_mode: Any = None
    watch_directories: Any = None
    watch_files: Any = None

    @model_validator(mode="after")
    def _check_timeout(self) -> Self:
        if self.function_timeout is not None and self.function_timeout <= timedelta():
            raise ValueError("functionTimeout must be positive, or -1 for no limit")
        return self


def read_host_json(path: Path, settings: Mapping[str, str]) -> HostJson:
    """Read and check the file, and what app settings override.

    Raises:
        CannotStartError: It is missing, not JSON, or has wrong values or unknown keys; all of them are named.
    """
    try:
        content = read_settings_file(path)
        for name, text in settings.items():
            prefix, *keys = name.split("__")
            if prefix.lower() == _OVERRIDE and keys and isinstance(content, dict):
                _override(content, keys, text)
        return HostJson.model_validate(content)
    except FileNotFoundError:
        raise CannotStartError(
            f"no host.json in {path.parent}: is this the folder of a function app?"
        ) from None
    except ValidationError as mistakes:
        raise CannotStartError(_describe(mistakes)) from None


def _override(table: dict[str, Any], keys: list[str], text: str) -> None:
    key, *below = keys
    name = next((each for each in table if each.lower() == key.lower()), key)
    if not below:
        table[name] = text
        return
    if not isinstance(table.get(name), dict):
        table[name] = {}
    _override(table[name], below, text)


def _describe(mistakes: ValidationError) -> str:
    lines = []
    for error in mistakes.errors(include_url=False):
        key = ".".join(str(part) for part in error["loc"]) or "the file"
        if error["type"] == "extra_forbidden":
            lines.append(f"host.json: unknown key {key}{_suggestion(error['loc'])}")
        else:
            lines.append(f"host.json: {key}: {error['msg']}")
    return "\n".join(lines)


def _suggestion(location: tuple[int | str, ...]) -> str:
    """Return what an unknown key may have been meant to be; "" when nothing is near."""
    *parents, wrong = location
    model: type[BaseModel] = HostJson
    for parent in parents:
        field = next(each for name, each in model.model_fields.items() if parent in {name, each.alias})
        model = _section_of(field.annotation)
    known = [field.alias or name for name, field in model.model_fields.items()]
    near = get_close_matches(str(wrong), known, n=1)
    return f", did you mean {near[0]}?" if near else ""


def _section_of(annotation: Any) -> type[BaseModel]:
    """Return the class of a table that may be absent (`Section | None`) or not."""
    section: type[BaseModel] = next(
        each for each in (annotation, *get_args(annotation)) if each is not type(None) and not get_args(each)
    )
    return section
