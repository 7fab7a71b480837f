"""host.json: the settings of the host, as far as onebox acts on them.

Key names are compared without regard to case, as the host's configuration does. A key that the host does not
know is a mistake worth stopping for: the host would ignore it in silence.
Source of names and defaults: "host.json reference for Azure Functions 2.x and later", Microsoft Learn.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from onebox import CannotStartError
from onebox.environment import read_settings_file
from onebox.hub.model import TERMINAL, Status
from onebox.hub.settings import VersionFailure, VersionMatch

_TIMESPAN = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d+)\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d{1,7})?))?"
)
_UNLIMITED = "-1"
_LEAST_POLLING = timedelta(milliseconds=100)


def parse_timespan(text: str) -> timedelta:
    """Parse `[-][d.]hh:mm[:ss[.fffffff]]`.

    Args:
        text: Hours below 24, minutes and seconds below 60.

    Returns:
        The duration, to the microsecond.

    Raises:
        ValueError: It has another form, or a part is out of range.
    """
    match = _TIMESPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a TimeSpan: write [d.]hh:mm:ss, as in 00:00:30")
    hours, minutes, seconds = int(match["hours"]), int(match["minutes"]), float(match["seconds"] or 0)
    if hours > 23 or minutes > 59 or seconds >= 60:  # noqa: PLR2004 # the clock's own numbers
        raise ValueError(f"{text!r} is not a TimeSpan: hours go to 23, minutes and seconds to 59")
    span = timedelta(days=int(match["days"] or 0), hours=hours, minutes=minutes, seconds=seconds)
    return -span if match["sign"] else span


def _read_timespan(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("write a TimeSpan in quotes, [d.]hh:mm:ss")  # noqa: TRY004 # pydantic wants ValueError
    return parse_timespan(value)


def _read_timeout(value: object) -> object:
    return None if value in {_UNLIMITED, None} else _read_timespan(value)


def _read_limit(value: object) -> object:
    return None if value == -1 else value


Limit = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_read_limit)]
TimeSpan = Annotated[timedelta, BeforeValidator(_read_timespan), Field(ge=timedelta())]
Timeout = Annotated[timedelta | None, BeforeValidator(_read_timeout)]


class _Section(BaseModel):
    """A table of host.json: camelCase keys in any case, unknown ones refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _fold_key_case(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        known = {
            (field.alias or name).lower(): field.alias or name for name, field in cls.model_fields.items()
        }
        return {known.get(key.lower(), key): item for key, item in value.items()}


class Queues(_Section):
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


class Http(_Section):
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


class DurableTask(_Section):
    """The Durable extension's settings: those below act, the rest belongs to storage that onebox replaces."""

    hub_name: str = Field("TestHubName", pattern=r"^[A-Za-z%][A-Za-z0-9%_.-]*$")
    max_concurrent_activity_functions: int | None = Field(None, ge=1)
    max_concurrent_orchestrator_functions: int | None = Field(None, ge=1)
    max_concurrent_entity_functions: int | None = Field(None, ge=1)
    max_entity_operation_batch_size: int | None = Field(None, ge=1)
    max_grpc_message_size_in_bytes: int | None = Field(None, ge=0)
    grpc_http_client_timeout: str | None = None
    default_version: str | None = None
    version_match_strategy: VersionMatch = VersionMatch.CURRENT_OR_OLDER
    version_failure_strategy: VersionFailure = VersionFailure.REJECT
    overridable_existing_instance_states: Literal["NonRunningStates", "AnyState"] = "NonRunningStates"
    storage_provider: Any = None
    tracing: Any = None
    notifications: Any = None
    http_settings: Any = None
    extended_sessions_enabled: Any = None
    extended_session_idle_timeout_in_seconds: Any = None
    max_orchestration_actions: Any = None
    entity_message_reorder_window_in_minutes: Any = None
    rollback_entity_operations_on_exceptions: Any = None
    store_inputs_in_orchestration_history: Any = None
    throw_status_exceptions_on_raise_event: Any = None
    use_app_lease: Any = None
    app_lease_options: Any = None
    use_graceful_shutdown: Any = None
    local_rpc_endpoint_enabled: Any = None
    disable_http_management_apis: Any = None
    log_replay_events: Any = None
    log_terse_exception_messages: Any = None
    worker_dispatcher_options: Any = None

    @property
    def replaceable(self) -> frozenset[Status]:
        """Statuses in which an instance gives way to a new one of its id."""
        return frozenset(Status) if self.overridable_existing_instance_states == "AnyState" else TERMINAL


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


class HostJson(_Section):
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
    functions: list[str] | None = None
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


def read_host_json(path: Path) -> HostJson:
    """Read and check the file.

    Raises:
        CannotStartError: It is missing, not JSON, or has wrong values or unknown keys; all of them are named.
    """
    try:
        return HostJson.model_validate(read_settings_file(path))
    except FileNotFoundError:
        raise CannotStartError(
            f"no host.json in {path.parent}: is this the folder of a function app?"
        ) from None
    except ValidationError as mistakes:
        raise CannotStartError(_describe(mistakes)) from None


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
    model: Any = HostJson
    for parent in parents:
        model = next(
            each.annotation for name, each in model.model_fields.items() if parent in {name, each.alias}
        )
    known = [field.alias or name for name, field in model.model_fields.items()]
    near = get_close_matches(str(wrong), known, n=1)
    return f", did you mean {near[0]}?" if near else ""
