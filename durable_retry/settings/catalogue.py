"""Every app setting of this app; `python -m scripts.settings_reference` writes the reference from it."""

from collections.abc import Mapping
from typing import Final

from azure.functions.decorators.kafka import BrokerAuthenticationMode, BrokerProtocol

from durable_retry.engine.alerts import Thresholds
from durable_retry.engine.intake import LagLimits
from durable_retry.settings.setting import Number, Setting, Text, WholeNumber

_KIB: Final = 1024
_DAYS_OF_A_CENTURY: Final = 36_500
_ALERTS: Final = Thresholds()
_LAG: Final = LagLimits()

# The app itself.
STORAGE: Final = Text(
    "AzureWebJobsStorage",
    "Storage account of tables, queues and the task hub. Locally `UseDevelopmentStorage=true`, the emulator.",
    secret=True,
)
STORAGE_ACCOUNT: Final = Text(
    "AzureWebJobsStorage__accountName",
    "Name of the storage account, reached by an identity. Used when `AzureWebJobsStorage` itself is not set.",
)
STORAGE_BLOBS: Final = Text(
    "AzureWebJobsStorage__blobServiceUri",
    "URL of its blobs, https, in place of the account's name; the host's setting.",
)
STORAGE_QUEUES: Final = Text(
    "AzureWebJobsStorage__queueServiceUri", "URL of its queues, https, in place of the account's name."
)
STORAGE_TABLES: Final = Text(
    "AzureWebJobsStorage__tableServiceUri", "URL of its tables, https, in place of the account's name."
)
STORAGE_CREDENTIAL: Final = Text(
    "AzureWebJobsStorage__credential",
    "`managedidentity`: the app's managed identity. Not set: the identity of the environment, outside Azure "
    "the signed-in developer.",
    choices=("managedidentity",),
)
STORAGE_CLIENT_ID: Final = Text(
    "AzureWebJobsStorage__clientId",
    "Client id of a user-assigned identity. Not set: the system-assigned one.",
)
STORAGE_RESOURCE_ID: Final = Text(
    "AzureWebJobsStorage__managedIdentityResourceId", "The same by resource id, in place of the client id."
)
SCRIPT_ROOT: Final = Text(
    "AzureWebJobsScriptRoot", "The folder of host.json; the host's. Not set: the current folder."
)
DEPENDENCIES_FILE: Final = Text(
    "DEPENDENCIES_FILE", "The file with the dependencies, beside `function_app.py`.", "dependencies.toml"
)
HANDLERS: Final = Text(
    "HANDLERS",
    "Modules with handlers, separated by commas, in addition to those that `function_app.py` names.",
)
TENANT_HEADER: Final = Text(
    "TENANT_HEADER",
    "Request header with the caller's tenant, such as `X-MS-CLIENT-PRINCIPAL-ID`; each tenant has its own "
    "keys. Not set: one tenant.",
)
TRACE_URL: Final = Text(
    "TRACE_URL",
    "Where a trace is looked at, an http(s) URL with `{trace_id}` in it; traced operations link to it. "
    "Not set: no link.",
)
AUTH_ENABLED: Final = Text(
    "WEBSITE_AUTH_ENABLED",
    "Whether App Service authentication is on; Azure sets it. Only then are its headers trusted.",
)
OPERATOR_ROLES: Final = Text(
    "OPERATOR_ROLES",
    "Who may change something, of the people whom App Service authentication lets in: values of role or "
    "group claims, or `claim=value`, separated by commas; the others only read. Not set: everybody.",
)
READER_ROLES: Final = Text(
    "READER_ROLES", "The same for who may read; the rest gets 403. Not set: everybody whom it lets in."
)
CALLER_KEYS: Final = Text(
    "CALLER_KEYS",
    "Names and roles of function keys, `name=reader:SHA256` or `name=operator:SHA256` separated by spaces, "
    "with the key's SHA-256 in hexadecimal. Any other key is an operator's.",
)
MAX_BODY_BYTES: Final = WholeNumber(
    "MAX_BODY_BYTES",
    "The largest body of a request or message, and the largest item of a batch.",
    64 * _KIB,
    "bytes",
    1,
    # A dead letter is one row of at most 1 MiB, where a character that is not ASCII can take twelve bytes.
    128 * _KIB,
)
MAX_BATCH_BYTES: Final = WholeNumber(
    "MAX_BATCH_BYTES", "The largest body of a batch.", 8 * 1024 * _KIB, "bytes", 1
)
READ_LIMIT_BYTES: Final = WholeNumber(
    "RESPONSE_READ_LIMIT_BYTES",
    "The largest part of a dependency's answer that is read.",
    1024 * _KIB,
    "bytes",
    1,
)
STORE_LIMIT_BYTES: Final = WholeNumber(
    "RESPONSE_STORE_LIMIT_BYTES",
    "The largest part of an answer that a result keeps; a cut is marked.",
    16 * _KIB,
    "bytes",
    1,
)
INLINE_RESULT_BYTES: Final = WholeNumber(
    "RESULT_INLINE_BYTES",
    "The largest result that histories and records carry; a larger one is stored once, beside them. During a "
    "deploy over a version without this setting: 10000000.",
    4 * _KIB,
    "bytes",
    0,
)
STRICT_TYPING: Final = Text(
    "AZURE_FUNCTIONS_DURABLE_STRICT_TYPING",
    "Of the Durable SDK; the app switches it on unless it is set. Leave it on: with `0`, JSON from callers "
    "can name classes.",
    "1",
)

# Sources.
SERVICE_BUS_QUEUE: Final = Text("SERVICE_BUS_QUEUE", "Queue to read.")
SERVICE_BUS_CONNECTION: Final = Text("SERVICE_BUS_CONNECTION", "Its connection.", secret=True)
EVENT_HUB: Final = Text("EVENT_HUB", "Event hub to read.")
EVENT_HUB_CONNECTION: Final = Text("EVENT_HUB_CONNECTION", "Its connection.", secret=True)
EVENT_HUB_CONSUMER_GROUP: Final = Text("EVENT_HUB_CONSUMER_GROUP", "Consumer group.", "$Default")
COSMOS_DATABASE: Final = Text("COSMOS_DATABASE", "Database whose change feed is read.")
COSMOS_CONTAINER: Final = Text("COSMOS_CONTAINER", "Container there.")
COSMOS_CONNECTION: Final = Text("COSMOS_CONNECTION", "Its connection.", secret=True)
COSMOS_LEASE_CONTAINER: Final = Text("COSMOS_LEASE_CONTAINER", "Where the host keeps its position.", "leases")
COSMOS_OPERATION: Final = Text(
    "COSMOS_OPERATION", "JSON pointer of the operation in a changed document. Not set: the document itself."
)
KAFKA_BROKERS: Final = Text("KAFKA_BROKERS", "Brokers, `host:port` separated by commas.")
KAFKA_TOPIC: Final = Text("KAFKA_TOPIC", "Topic to read.")
KAFKA_CONSUMER_GROUP: Final = Text(
    "KAFKA_CONSUMER_GROUP", "Consumer group. Not set: the extension's default."
)
KAFKA_USERNAME: Final = Text("KAFKA_USERNAME", "User at the brokers.")
KAFKA_PASSWORD: Final = Text("KAFKA_PASSWORD", "The user's password.", secret=True)
KAFKA_PROTOCOL: Final = Text(
    "KAFKA_PROTOCOL",
    "Protocol of the brokers. Not set: the extension's default.",
    choices=tuple(BrokerProtocol.__members__),
)
KAFKA_AUTHENTICATION: Final = Text(
    "KAFKA_AUTHENTICATION",
    "Authentication of the user. Not set: the extension's default.",
    choices=tuple(BrokerAuthenticationMode.__members__),
)
SCHEDULED_OPERATIONS: Final = Text(
    "SCHEDULED_OPERATIONS", "TOML of operations with schedules, or the name of a `.toml` file with it."
)
KEY_POINTERS: Final = Text(
    "KEY_POINTERS",
    "JSON pointers into an operation's body, separated by commas, whose values make its key. "
    "`KEY_POINTERS_KAFKA` and the like apply to one source.",
)
INTAKE_ORDER: Final = Text(
    "INTAKE_ORDER",
    "`partition`: starts the operations of one partition one after the other, in order.",
    "none",
    choices=("none", "partition"),
)
INTAKE_CONCURRENCY: Final = WholeNumber(
    "INTAKE_CONCURRENCY", "Starts in progress at once in one process, from all sources but HTTP.", 16, "", 1
)
HTTP_CONCURRENCY: Final = WholeNumber(
    "HTTP_CONCURRENCY",
    "Submissions over HTTP under way at once in one process; a further one is answered 503; 0 = no limit.",
    500,
)
HTTP_TASK_HUB_LAG_SECONDS: Final = Number(
    "HTTP_TASK_HUB_LAG_SECONDS",
    "Submissions over HTTP are answered 503 while an operation has not begun for so long; 0 = off.",
    300.0,
    "s",
)
INTAKE_RETRIES: Final = WholeNumber(
    "INTAKE_RETRIES",
    "The platform's retries of a batch or timer; -1 = without end; 0 is refused.",
    -1,
    "",
    -1,
)
INTAKE_TASK_HUB_LAG_SECONDS: Final = Number(
    "INTAKE_TASK_HUB_LAG_SECONDS",
    "The task hub is far behind when an operation has not begun after this time; 0 = off.",
    _LAG.task_hub_seconds,
    "s",
)
INTAKE_DEPENDENCY_LAG_SECONDS: Final = Number(
    "INTAKE_DEPENDENCY_LAG_SECONDS",
    "A dependency is far behind when an operation still waits for the circuit this long after its start; "
    "0 = off.",
    _LAG.dependency_seconds,
    "s",
)
INTAKE_PAUSE_SECONDS: Final = Number(
    "INTAKE_PAUSE_SECONDS",
    "The longest that one delivery waits while the task hub or a dependency is far behind.",
    20.0,
    "s",
)

# Watching and keeping.
ALERT_DEAD_LETTERS: Final = Number(
    "ALERT_DEAD_LETTERS", "Alert when there are more open dead letters; 0 = off.", _ALERTS.dead_letters
)
ALERT_DEAD_LETTER_AGE_SECONDS: Final = Number(
    "ALERT_DEAD_LETTER_AGE_SECONDS",
    "Alert when the oldest open dead letter is older; 0 = off.",
    _ALERTS.dead_letter_age_seconds,
    "s",
)
ALERT_OUTBOX_LAG_SECONDS: Final = Number(
    "ALERT_OUTBOX_LAG_SECONDS",
    "Alert when an event waits longer to be sent; 0 = off.",
    _ALERTS.outbox_lag_seconds,
    "s",
)
ALERT_CIRCUIT_OPEN_SECONDS: Final = Number(
    "ALERT_CIRCUIT_OPEN_SECONDS",
    "Alert when a circuit is open for longer; 0 = off.",
    _ALERTS.circuit_open_seconds,
    "s",
)
ALERT_RETRIES_EXHAUSTED_PER_HOUR: Final = Number(
    "ALERT_RETRIES_EXHAUSTED_PER_HOUR",
    "Alert when more operations used up their attempts in the last hour; 0 = off.",
    _ALERTS.retries_exhausted_per_hour,
)
ALERT_WEBHOOK: Final = Text(
    "ALERT_WEBHOOK",
    "Dependency that receives alerts, `dependency:/path`, by an operation of its own. Not set: none.",
)
ALERT_WEBHOOK_URL: Final = Text(
    "ALERT_WEBHOOK_URL",
    "https URLs that receive alerts as JSON, signed, separated by spaces. Not set: none.",
    secret=True,
)
ALERT_WEBHOOK_SECRET: Final = Text(
    "ALERT_WEBHOOK_SECRET",
    "Signs what `ALERT_WEBHOOK_URL` gets: base64 of 24 to 64 bytes, with or without `whsec_` before it; "
    "several, separated by spaces, all sign.",
    secret=True,
)
ALERT_SLACK_URL: Final = Text(
    "ALERT_SLACK_URL",
    "Incoming webhooks of Slack that receive alerts, separated by spaces. Not set: none.",
    secret=True,
)
ALERT_TEAMS_URL: Final = Text(
    "ALERT_TEAMS_URL",
    "Webhooks of Teams workflows that receive alerts, separated by spaces. Not set: none.",
    secret=True,
)
DEAD_LETTER_RETENTION_DAYS: Final = Number(
    "DEAD_LETTER_RETENTION_DAYS",
    "How long archived dead letters are kept; 0 = for ever. Open ones are kept until a person acts.",
    30,
    "days",
    most=_DAYS_OF_A_CENTURY,
)
HISTORY_RETENTION_DAYS: Final = Number(
    "HISTORY_RETENTION_DAYS",
    "How long finished orchestrations and batches are kept, from their start; 0 = for ever.",
    7,
    "days",
    most=_DAYS_OF_A_CENTURY,
)
SENT_EVENT_RETENTION_DAYS: Final = Number(
    "SENT_EVENT_RETENTION_DAYS",
    "How long sent events are kept, from their operation's success; 0 = for ever.",
    7,
    "days",
    most=_DAYS_OF_A_CENTURY,
)
METRICS_RETENTION_DAYS: Final = Number(
    "METRICS_RETENTION_DAYS",
    "How long metrics over time are kept, by days that have ended; 0 = for ever.",
    7,
    "days",
    most=_DAYS_OF_A_CENTURY,
)

# Telemetry. The names are OpenTelemetry's, Application Insights' and the Python worker's; their packages read
# more of OpenTelemetry's standard settings than these.
OTLP_ENDPOINT: Final = Text(
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "Base URL of an OTLP collector over HTTP, such as `http://localhost:4318`. Not set: none.",
)
OTLP_TRACES_ENDPOINT: Final = Text(
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "Whole URL for traces, in place of the base URL."
)
OTLP_METRICS_ENDPOINT: Final = Text("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "The same for metrics.")
OTLP_LOGS_ENDPOINT: Final = Text("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "The same for log lines.")
OTLP_PROTOCOL: Final = Text(
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "Only `http/protobuf` is supported; any other logs a warning.",
    "http/protobuf",
)
OTLP_HEADERS: Final = Text(
    "OTEL_EXPORTER_OTLP_HEADERS", "Headers for the collector, `name=value` separated by commas.", secret=True
)
TRACES_EXPORTER: Final = Text("OTEL_TRACES_EXPORTER", "`none` switches traces off.", "otlp")
METRICS_EXPORTER: Final = Text("OTEL_METRICS_EXPORTER", "`none` switches metrics off.", "otlp")
LOGS_EXPORTER: Final = Text("OTEL_LOGS_EXPORTER", "`none` switches log lines off.", "otlp")
METRIC_EXPORT_INTERVAL: Final = Text(
    "OTEL_METRIC_EXPORT_INTERVAL", "Milliseconds between two exports of metrics.", "60000"
)
TRACES_SAMPLER: Final = Text(
    "OTEL_TRACES_SAMPLER", "Which traces are kept, with `OTEL_TRACES_SAMPLER_ARG`.", "parentbased_always_on"
)
SERVICE_NAME: Final = Text(
    "OTEL_SERVICE_NAME", "Name of the service. Not set: the Function App's name, else `durable-retry`."
)
SITE_NAME: Final = Text("WEBSITE_SITE_NAME", "Name of the Function App; Azure sets it.")
SITE_HOST: Final = Text(
    "WEBSITE_HOSTNAME",
    "Host name of the Function App; Azure sets it. Messages about alerts link to the dashboard there.",
)
TELEMETRY_DISABLED: Final = Text("OTEL_SDK_DISABLED", "`true`: no telemetry, whatever else is set.", "false")
AZURE_MONITOR: Final = Text(
    "APPLICATIONINSIGHTS_CONNECTION_STRING",
    "Application Insights as a receiver; the host reads it too. Not set: none.",
    secret=True,
)
AZURE_MONITOR_AUTHENTICATION: Final = Text(
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
    "`Authorization=AAD`, with `ClientId=...` of a user-assigned identity: by managed identity. Not set: the "
    "connection string alone.",
)
WORKER_OPENTELEMETRY: Final = Text(
    "PYTHON_ENABLE_OPENTELEMETRY",
    "`true`: the worker makes the host's spans the parents of the app's, and withholds log lines from the "
    "host; the app sends them to Application Insights itself.",
    "false",
)
WORKER_DISTRIBUTION: Final = Text(
    "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY",
    "`true`: the worker sets up Microsoft's own distribution, which must be installed, and the app sends "
    "nothing to Application Insights itself.",
    "false",
)

CATALOGUE: Final[Mapping[str, tuple[Setting, ...]]] = {
    "The app": (
        STORAGE,
        DEPENDENCIES_FILE,
        HANDLERS,
        TENANT_HEADER,
        OPERATOR_ROLES,
        READER_ROLES,
        CALLER_KEYS,
        AUTH_ENABLED,
        MAX_BODY_BYTES,
        MAX_BATCH_BYTES,
        READ_LIMIT_BYTES,
        STORE_LIMIT_BYTES,
        INLINE_RESULT_BYTES,
        STRICT_TYPING,
        SCRIPT_ROOT,
    ),
    "Storage by an identity": (
        STORAGE_ACCOUNT,
        STORAGE_BLOBS,
        STORAGE_QUEUES,
        STORAGE_TABLES,
        STORAGE_CREDENTIAL,
        STORAGE_CLIENT_ID,
        STORAGE_RESOURCE_ID,
    ),
    "Sources": (
        SERVICE_BUS_QUEUE,
        SERVICE_BUS_CONNECTION,
        EVENT_HUB,
        EVENT_HUB_CONNECTION,
        EVENT_HUB_CONSUMER_GROUP,
        COSMOS_DATABASE,
        COSMOS_CONTAINER,
        COSMOS_CONNECTION,
        COSMOS_LEASE_CONTAINER,
        COSMOS_OPERATION,
        KAFKA_BROKERS,
        KAFKA_TOPIC,
        KAFKA_CONSUMER_GROUP,
        KAFKA_USERNAME,
        KAFKA_PASSWORD,
        KAFKA_PROTOCOL,
        KAFKA_AUTHENTICATION,
        SCHEDULED_OPERATIONS,
        KEY_POINTERS,
    ),
    "How much is taken at once": (
        HTTP_CONCURRENCY,
        HTTP_TASK_HUB_LAG_SECONDS,
        INTAKE_ORDER,
        INTAKE_CONCURRENCY,
        INTAKE_RETRIES,
        INTAKE_TASK_HUB_LAG_SECONDS,
        INTAKE_DEPENDENCY_LAG_SECONDS,
        INTAKE_PAUSE_SECONDS,
    ),
    "Alerts": (
        ALERT_DEAD_LETTERS,
        ALERT_DEAD_LETTER_AGE_SECONDS,
        ALERT_OUTBOX_LAG_SECONDS,
        ALERT_CIRCUIT_OPEN_SECONDS,
        ALERT_RETRIES_EXHAUSTED_PER_HOUR,
        ALERT_WEBHOOK,
        ALERT_WEBHOOK_URL,
        ALERT_WEBHOOK_SECRET,
        ALERT_SLACK_URL,
        ALERT_TEAMS_URL,
        SITE_HOST,
    ),
    "Telemetry": (
        TRACE_URL,
        OTLP_ENDPOINT,
        OTLP_TRACES_ENDPOINT,
        OTLP_METRICS_ENDPOINT,
        OTLP_LOGS_ENDPOINT,
        OTLP_PROTOCOL,
        OTLP_HEADERS,
        TRACES_EXPORTER,
        METRICS_EXPORTER,
        LOGS_EXPORTER,
        METRIC_EXPORT_INTERVAL,
        TRACES_SAMPLER,
        SERVICE_NAME,
        SITE_NAME,
        TELEMETRY_DISABLED,
        AZURE_MONITOR,
        AZURE_MONITOR_AUTHENTICATION,
        WORKER_OPENTELEMETRY,
        WORKER_DISTRIBUTION,
    ),
    "Retention": (
        DEAD_LETTER_RETENTION_DAYS,
        HISTORY_RETENTION_DAYS,
        SENT_EVENT_RETENTION_DAYS,
        METRICS_RETENTION_DAYS,
    ),
}
"""Settings by what they are for, in the order of the reference."""
