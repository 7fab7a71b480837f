"""The settings of the Durable extension in host.json.

Source of names, defaults and bounds: `DurableTaskOptions`, `AzureStorageOptions`, `TraceOptions` and
`NotificationOptions` of the extension, and "host.json settings", Durable Functions, Microsoft Learn.
"""

import re
from datetime import timedelta
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from onebox.host_section import Section, TimeSpan
from onebox.hub.model import TERMINAL, Status
from onebox.hub.settings import VersionFailure, VersionMatch

_HIDDEN = timedelta(minutes=5)
_AZURE_STORAGE: Final = "AzureStorage"
_STORABLE_HUB: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{2,49}|.*%.*")
"""Names that tables, queues and containers may have; the value of an app setting is not looked at."""
_PROVIDERS = (_AZURE_STORAGE, "azureManaged", "mssql", "Netherite")


def _read_provider(value: object) -> object:
    return next((each for each in _PROVIDERS if each.lower() == str(value).lower()), value)


class StorageProvider(Section):
    """Where the extension keeps its hub. onebox keeps its own, and checks that a deployed app would start.

    The first keys are those of Azure Storage; `schema_name` and its neighbours belong to SQL,
    `event_hubs_connection_name` and its neighbour to Netherite, the last two to the Durable Task Scheduler.
    """

    type: Annotated[
        Literal["AzureStorage", "azureManaged", "mssql", "Netherite"], BeforeValidator(_read_provider)
    ] = "AzureStorage"
    connection_name: str | None = None
    connection_string_name: str | None = None
    control_queue_batch_size: int = Field(32, ge=1, le=32)
    control_queue_buffer_threshold: int = Field(256, ge=1, le=1000)
    control_queue_visibility_timeout: TimeSpan = _HIDDEN
    work_item_queue_visibility_timeout: TimeSpan = _HIDDEN
    partition_count: int = Field(4, ge=1, le=32)
    max_queue_polling_interval: Annotated[TimeSpan, Field(gt=timedelta())] | None = None
    tracking_store_connection_name: str | None = None
    tracking_store_connection_string_name: str | None = None
    tracking_store_name_prefix: str | None = None
    fetch_large_messages_automatically: bool = True
    use_legacy_partition_management: bool = False
    use_table_partition_management: bool = True
    partition_table_operation_timeout: TimeSpan | None = None
    allow_replaying_terminal_instances: bool = False
    queue_client_message_encoding: str | None = None
    use_instance_table_etag: bool = False
    task_event_lock_timeout: TimeSpan | None = None
    create_database_if_not_exists: bool = False
    database_name: str | None = None
    schema_name: str | None = None
    storage_connection_name: str | None = None
    event_hubs_connection_name: str | None = None
    large_payload_storage_enabled: bool = False
    work_item_filtering_enabled: bool = False

    @model_validator(mode="after")
    def _check_bounds_of_azure_storage(self) -> Self:
        if self.type != _AZURE_STORAGE:
            return self
        if self.partition_count > 16:  # noqa: PLR2004 - as the message says
            raise ValueError("partitionCount must be between 1 and 16")
        if not timedelta(minutes=1) <= self.control_queue_visibility_timeout <= timedelta(minutes=60):
            raise ValueError("controlQueueVisibilityTimeout must be between 00:01:00 and 01:00:00")
        return self


class Tracing(Section):
    """What the extension traces; onebox has its own log."""

    trace_inputs_and_outputs: bool = False
    trace_replay_events: bool = False
    distributed_tracing_enabled: bool = False
    distributed_tracing_protocol: str | None = None
    version: str | None = None


class EventGrid(Section):
    """Events of an orchestration's life, which onebox does not publish."""

    topic_endpoint: str | None = None
    key_setting_name: str | None = None
    publish_retry_count: int = Field(0, ge=0)
    publish_retry_interval: TimeSpan | None = None
    publish_retry_http_status: list[int] = Field(default_factory=list)
    publish_event_types: list[str] = Field(default_factory=list)


class Notifications(Section):
    """Who is notified."""

    event_grid: EventGrid | None = None


class HttpSettings(Section):
    """How durable HTTP calls poll, and whether URLs follow forwarded headers."""

    default_async_request_sleep_time_milliseconds: int = Field(30_000, ge=0)
    use_forwarded_host: bool = False


class AppLease(Section):
    """How two function apps that share a hub take turns."""

    renew_interval: TimeSpan | None = None
    acquire_interval: TimeSpan | None = None
    lease_interval: TimeSpan | None = None


class DurableTask(Section):
    """The Durable extension's settings.

    Attributes:
        entity_message_reorder_window_in_minutes: While it is not 0, Azure Storage drops every message of an
            orchestration to an entity that carries no timestamp, and the Python SDK gives none.
    """

    hub_name: str = Field("TestHubName", pattern=r"^[A-Za-z%][A-Za-z0-9%_.-]*$")
    max_concurrent_activity_functions: int | None = Field(None, ge=1)
    max_concurrent_orchestrator_functions: int | None = Field(None, ge=1)
    max_concurrent_entity_functions: int | None = Field(None, ge=1)
    max_entity_operation_batch_size: int | None = Field(None, ge=1)
    max_grpc_message_size_in_bytes: int = Field(4_194_304, ge=1)
    grpc_http_client_timeout: TimeSpan | None = None
    default_version: str | None = None
    version_match_strategy: VersionMatch = VersionMatch.CURRENT_OR_OLDER
    version_failure_strategy: VersionFailure = VersionFailure.REJECT
    overridable_existing_instance_states: Literal["NonRunningStates", "AnyState"] = "NonRunningStates"
    storage_provider: StorageProvider = Field(default_factory=StorageProvider)
    tracing: Tracing | None = None
    notifications: Notifications | None = None
    http_settings: HttpSettings | None = None
    extended_sessions_enabled: bool = False
    extended_session_idle_timeout_in_seconds: int = Field(30, ge=0)
    max_orchestration_actions: int = Field(100_000, ge=1)
    entity_message_reorder_window_in_minutes: int = Field(30, ge=0)
    rollback_entity_operations_on_exceptions: bool = True
    store_inputs_in_orchestration_history: bool = False
    throw_status_exceptions_on_raise_event: bool | None = None
    use_app_lease: bool = True
    app_lease_options: AppLease | None = None
    use_graceful_shutdown: bool = False
    local_rpc_endpoint_enabled: bool | None = None
    disable_http_management_apis: bool = False
    log_replay_events: bool | None = None
    log_terse_exception_messages: bool | None = None

    @model_validator(mode="after")
    def _check_hub_name(self) -> Self:
        if self.storage_provider.type == _AZURE_STORAGE and not _STORABLE_HUB.fullmatch(self.hub_name):
            raise ValueError("hubName must be 3 to 50 letters and digits, a letter first, on Azure Storage")
        return self

    @property
    def replaceable(self) -> frozenset[Status]:
        """Statuses in which an instance gives way to a new one of its id."""
        return frozenset(Status) if self.overridable_existing_instance_states == "AnyState" else TERMINAL

    @property
    def drops_entity_messages(self) -> bool:
        """Whether orchestrations' messages to entities are lost in this app's deployment.

        The sorter that drops them is that of Azure Storage; SQL and the Durable Task Scheduler have none.
        """
        return (
            self.storage_provider.type == _AZURE_STORAGE and self.entity_message_reorder_window_in_minutes > 0
        )
