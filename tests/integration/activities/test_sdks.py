"""What client libraries raise, by their own code paths where a server on loopback can bring them about.

The libraries are those of requirements-sdks.txt. They are imported where they are used: together they take
seconds.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module, reload
from threading import Thread
from typing import Any, ClassVar, Final

import pytest

import durable_retry
from durable_retry.attempt.attempt import make_attempt
from durable_retry.features.handlers import registry
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.settings.configuration import using
from durable_retry.testing import run_orchestrator
from tests.support.builders import an_operation

pytestmark = pytest.mark.usefixtures("no_handlers", "tables_in_memory")

NOBODY: Final = "127.0.0.1:9"
JSON: Final = {"content-type": "application/json"}


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = ""


class Refusing(BaseHTTPRequestHandler):
    """Answers every request alike."""

    protocol_version = "HTTP/1.1"
    answer = Answer(500)
    before: ClassVar[list[Answer]] = []  # what the first requests are answered

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        answer = self.before.pop(0) if self.before else type(self).answer
        is_text = isinstance(answer.body, str)
        body = (answer.body if is_text else json.dumps(answer.body)).encode()
        self.send_response(answer.status)
        for name, value in {**({} if is_text else JSON), **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = _refuse  # noqa: N815 - names of the base class

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server that answers as `Refusing.answer` says."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def outcome_of(raising: Callable[[], Any]) -> AttemptOutcome:
    """Return the outcome of a handler that lets out what a library raises; `raising` may be async."""
    registry._handlers.clear()

    def handle() -> Any:
        return raising()

    durable_retry.operation("handle", dependency="safe")(handle)
    operation = an_operation(handler="handle", request=None, input={}, dependency="safe", deadline_at=None)
    return await make_attempt(operation, 1)


def library(name: str) -> Any:
    """Return a module; as `Any`, so that mypy reads none of it."""
    return import_module(name)


def openai(url: str) -> Any:
    with library("openai").OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        return client.chat.completions.create(model="m", messages=[])


def openai_stream(url: str) -> Any:
    with library("openai").OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        return list(client.chat.completions.create(model="m", messages=[], stream=True))


def anthropic(url: str) -> Any:
    with library("anthropic").Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        return client.messages.create(model="m", messages=[], max_tokens=1)


def stripe(url: str) -> Any:
    client = library("stripe").StripeClient("sk", base_addresses={"api": url}, max_network_retries=0)
    return client.v1.charges.create()


def httpx2(url: str) -> Any:
    return library("httpx2").post(url).raise_for_status()


def requests(url: str) -> Any:
    return library("requests").post(url).raise_for_status()


def urllib(url: str) -> Any:
    return library("urllib.request").urlopen(url)


@cache
def aws_client(url: str, service: str) -> Any:
    config = library("botocore.config").Config(retries={"total_max_attempts": 1})
    return (
        library("botocore.session")
        .get_session()
        .create_client(
            service,
            region_name="eu-west-1",
            endpoint_url=url,
            aws_access_key_id="id",
            aws_secret_access_key="secret",
            config=config,
        )
    )


def dynamodb(url: str) -> Any:
    return aws_client(url, "dynamodb").list_tables()


def s3(url: str) -> Any:
    return aws_client(url, "s3").list_buckets()


def dynamodb_without_a_table(url: str) -> Any:
    return aws_client(url, "dynamodb").get_item()


def google_rest(url: str) -> Any:
    raise library("google.api_core.exceptions").from_http_response(library("requests").get(url))


def blob(url: str) -> Any:
    with library("azure.storage.blob").ContainerClient(url, "orders", retry_total=0) as client:
        return client.create_container()


def table(url: str) -> Any:
    credential = library("azure.core.credentials").AzureNamedKeyCredential("orders", "a2V5")
    with library("azure.data.tables").TableClient(
        url, "orders", credential=credential, retry_total=0
    ) as rows:
        return rows.create_table()


def cosmos(url: str) -> Any:
    # It tries once more than it is told to, after the wait that it is asked for.
    return library("azure.cosmos").CosmosClient(url, "a2V5", retry_total=0, retry_backoff_max=0)


THROTTLE: Final = {"Retry-After": "40"}
QUOTA: Final = {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}


def aws(code: str) -> dict[str, str]:
    return {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no"}


def slow_down(code: str) -> str:
    return f"<Error><Code>{code}</Code><Message>no</Message></Error>"


RETRY_INFO: Final = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}

# What is asked, what a server answers, and what the attempt ends with: category, wait, and whether it counts.
BY_ANSWER: Final[list[tuple[Callable[[str], Any], Answer, str, float | None]]] = [
    (openai, Answer(429, THROTTLE, QUOTA), "throttled", 40),
    (openai, Answer(429, {"retry-after-ms": "1500"}, QUOTA), "throttled", 1.5),
    (openai, Answer(400, {}, {"error": {"message": "no such model"}}), "malformed", None),
    (openai, Answer(401, {}, {"error": {"message": "bad key"}}), "unauthorized, waits", None),
    (openai, Answer(500, {"x-should-retry": "false"}), "malformed", None),
    (openai_stream, Answer(200, {}, f"data: {json.dumps(QUOTA)}\n\n"), "throttled", None),
    (anthropic, Answer(429, THROTTLE, QUOTA), "throttled", 40),
    (anthropic, Answer(400, {}, {"error": {"message": "too long"}}), "malformed", None),
    (anthropic, Answer(401, {}, {"error": {"message": "bad key"}}), "unauthorized, waits", None),
    (anthropic, Answer(529, {}, {"error": {"message": "Overloaded"}}), "transient", None),
    (httpx2, Answer(429, THROTTLE), "throttled", 40),
    (httpx2, Answer(404), "not_found", None),
    (requests, Answer(503, THROTTLE), "throttled", 40),
    (urllib, Answer(429, THROTTLE), "throttled", 40),
    (stripe, Answer(429, THROTTLE, {"error": {"message": "lock_timeout"}}), "throttled", 40),
    (
        stripe,
        Answer(402, {}, {"error": {"message": "no", "type": "card_error"}}),
        "business_rule",
        None,
    ),
    (stripe, Answer(401, {}, {"error": {"message": "no such key"}}), "unauthorized, waits", None),
    (
        stripe,
        Answer(409, {"Stripe-Should-Retry": "true"}, {"error": {"message": "later"}}),
        "transient",
        None,
    ),
    (dynamodb, Answer(400, {}, aws("ThrottlingException")), "throttled", None),
    (dynamodb, Answer(400, {}, aws("ConditionalCheckFailedException")), "business_rule", None),
    (dynamodb, Answer(400, {}, aws("ResourceNotFoundException")), "not_found", None),
    (dynamodb, Answer(400, {}, aws("ValidationException")), "malformed", None),
    (dynamodb, Answer(400, {}, aws("AccessDeniedException")), "unauthorized", None),
    (dynamodb, Answer(400, {}, aws("ExpiredTokenException")), "unauthorized, waits", None),
    (dynamodb, Answer(500, {}, aws("InternalServerError")), "transient", None),
    (dynamodb_without_a_table, Answer(200), "malformed", None),
    (s3, Answer(503, {}, slow_down("SlowDown")), "throttled", None),
    (s3, Answer(403, {}, slow_down("InvalidAccessKeyId")), "unauthorized, waits", None),
    (google_rest, Answer(429, {}, {"error": {"message": "no", "details": [RETRY_INFO]}}), "throttled", 7.5),
    (google_rest, Answer(403, {}, {"error": {"message": "no"}}), "unauthorized", None),
    (blob, Answer(409, {"x-ms-error-code": "ContainerBeingDeleted"}), "transient", None),
    (blob, Answer(409, {"x-ms-error-code": "ContainerAlreadyExists"}), "business_rule", None),
    (blob, Answer(412, {"x-ms-error-code": "LeaseLost"}), "business_rule", None),
    (blob, Answer(413, {"x-ms-error-code": "RequestBodyTooLarge"}), "malformed", None),
    (blob, Answer(503, {"x-ms-error-code": "ServerBusy", **THROTTLE}), "throttled", 40),
    (blob, Answer(401, {"x-ms-error-code": "NoAuthenticationInformation"}), "unauthorized, waits", None),
    (table, Answer(409, {"x-ms-error-code": "TableBeingDeleted"}), "transient", None),
    (cosmos, Answer(429, {"x-ms-retry-after-ms": "20"}, {"message": "rate"}), "throttled", 0.02),
    (cosmos, Answer(449, {}, {"message": "retry with"}), "transient", None),
    (cosmos, Answer(403, {}, {"message": "blocked by the firewall"}), "unauthorized", None),
]


def summary(outcome: AttemptOutcome) -> tuple[str, float | None]:
    assert outcome.category is not None
    assert "unknown kind of error" not in (outcome.error or "")
    hint = outcome.retry_hint
    waits = "" if outcome.counted else ", waits"
    return outcome.category.value + waits, None if hint is None else hint.delay_seconds


@pytest.mark.parametrize(("ask", "answer", "category", "seconds"), BY_ANSWER)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_what_carries_an_answer_is_read_as_that_answer(
    ask: Callable[[str], Any], answer: Answer, category: str, seconds: float | None, url: str
) -> None:
    Refusing.answer = answer
    assert summary(await outcome_of(partial(ask, url))) == (category, seconds)


async def test_an_answer_of_aiohttp_is_read_as_that_answer(url: str) -> None:
    async def ask() -> None:
        async with library("aiohttp").ClientSession(raise_for_status=True) as session:
            await session.post(url)

    Refusing.answer = Answer(429, THROTTLE)
    assert summary(await outcome_of(ask)) == ("throttled", 40)


# --- gRPC: a server that answers with a code, and google.api_core around it


DETAILS: Final = "google.rpc.error_details_pb2"


@contextmanager
def grpc_call(code: str) -> Iterator[Callable[[], Any]]:
    grpc, status = library("grpc"), library("google.rpc.status_pb2")
    wait = library("google.protobuf.any_pb2").Any()
    wait.Pack(
        library("google.rpc.error_details_pb2").RetryInfo(retry_delay={"seconds": 7, "nanos": 5 * 10**8})
    )
    number = getattr(grpc.StatusCode, code).value[0]

    def refuse(_: Any, context: Any) -> None:
        told = status.Status(
            code=number, message="no", details=[wait] if code == "RESOURCE_EXHAUSTED" else []
        )
        context.abort_with_status(library("grpc_status.rpc_status").to_status(told))

    server = grpc.server(ThreadPoolExecutor(1))
    methods = {"Call": grpc.unary_unary_rpc_method_handler(refuse)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield partial(channel.unary_unary("/test.Test/Call"), b"")
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("RESOURCE_EXHAUSTED", "throttled"),
        ("UNAVAILABLE", "transient"),
        ("DEADLINE_EXCEEDED", "transient"),
        ("ABORTED", "transient"),
        ("CANCELLED", "transient"),
        ("INVALID_ARGUMENT", "malformed"),
        ("UNIMPLEMENTED", "malformed"),
        ("NOT_FOUND", "not_found"),
        ("ALREADY_EXISTS", "business_rule"),
        ("PERMISSION_DENIED", "unauthorized"),
        ("UNAUTHENTICATED", "unauthorized, waits"),
    ],
)
async def test_a_code_of_grpc_is_read_as_its_status(code: str, category: str) -> None:
    with grpc_call(code) as call:
        plain = await outcome_of(call)
        wrapped = await outcome_of(library("google.api_core.grpc_helpers").wrap_errors(call))
    assert summary(plain) == (category, None)
    assert summary(wrapped) == (category, 7.5 if code == "RESOURCE_EXHAUSTED" else None)
    assert f"{code}: no" in (plain.error or "")


# --- what carries no answer, made as the libraries make it


def thrown(error: BaseException) -> Any:
    raise error


def service_bus(condition: str) -> Any:
    transport = library("azure.servicebus._transport._pyamqp_transport").PyamqpTransport
    failed = library("azure.servicebus._pyamqp.error").AMQPException(
        condition=condition.encode(), description="d"
    )
    raise transport.create_servicebus_exception(logging.getLogger("test"), failed)


def service_bus_class(name: str) -> Any:
    raise getattr(library("azure.servicebus.exceptions"), name)(message="no")


def event_hub(condition: str) -> Any:
    transport = library("azure.eventhub._transport._pyamqp_transport").PyamqpTransport
    failed = library("azure.eventhub._pyamqp.error").AMQPException(
        condition=condition.encode(), description="d"
    )
    raise transport._create_eventhub_exception(failed)


def event_hub_class(name: str) -> Any:
    raise getattr(library("azure.eventhub.exceptions"), name)("no")


def mongo(reply: Mapping[str, Any]) -> Any:
    return library("pymongo.helpers_shared")._check_command_response({"ok": 0, "errmsg": "no", **reply}, None)


def mongo_away(address: str) -> Any:
    with library("pymongo").MongoClient(f"mongodb://{address}", serverSelectionTimeoutMS=10) as client:
        return client.admin.command("ping")


def bson_of(document: Mapping[str, Any]) -> Any:
    return library("bson").encode(document)


def redis(reply: str) -> Any:
    raise library("redis._parsers.base").BaseParser.parse_error(reply)


def redis_class(name: str) -> Any:
    raise getattr(library("redis.exceptions"), name)("no")


def redis_away(address: str) -> Any:
    host, port = address.split(":")
    retry = library("redis.retry").Retry(library("redis.backoff").NoBackoff(), 0)
    with library("redis").Redis(host, int(port), retry=retry) as client:
        return client.ping()


def postgres(sqlstate: str) -> Any:
    raise library("psycopg.errors").lookup(sqlstate)("no")


def postgres_away(address: str) -> Any:
    host, port = address.split(":")
    return library("psycopg").connect(host=host, port=port)


def postgres_by_sqlalchemy(sqlstate: str) -> Any:
    psycopg, error = library("psycopg"), library("psycopg.errors").lookup(sqlstate)("no")
    raise library("sqlalchemy.exc").DBAPIError.instance("SELECT", {}, error, psycopg.Error) from error


def sqlite(statement: str) -> Any:
    engine = library("sqlalchemy").create_engine("sqlite://")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            return connection.exec_driver_sql(statement)
    finally:
        engine.dispose()


def aws_without_credentials(_: str) -> Any:
    session = library("botocore.session").get_session()
    client = session.create_client("dynamodb", region_name="eu-west-1", endpoint_url=f"http://{NOBODY}")
    session.set_credentials(None, None)
    client._request_signer._credentials = None
    return client.list_tables()


def openai_finish(name: str) -> Any:
    made = library("types").SimpleNamespace(usage=None)
    raise getattr(library("openai"), name)(completion=made)


def from_(module: str) -> Callable[[str], Any]:
    return lambda name: thrown(getattr(library(module), name)("no"))


BY_CLASS: Final[list[tuple[Callable[[Any], Any], Any, str]]] = [
    (service_bus, "com.microsoft:server-busy", "throttled"),
    (service_bus, "amqp:resource-limit-exceeded", "transient"),
    (service_bus, "amqp:unauthorized-access", "unauthorized"),
    (service_bus, "amqp:link:message-size-exceeded", "malformed"),
    (service_bus, "amqp:not-found", "not_found"),
    (service_bus, "com.microsoft:message-lock-lost", "business_rule"),
    (service_bus, "com.microsoft:session-lock-lost", "business_rule"),
    (service_bus, "com.microsoft:session-cannot-be-locked", "transient"),
    (service_bus, "com.microsoft:entity-disabled", "transient"),
    (service_bus, "com.microsoft:timeout", "transient"),
    (service_bus_class, "ServiceBusAuthenticationError", "unauthorized, waits"),
    (service_bus_class, "ServiceBusCommunicationError", "transient"),
    (service_bus_class, "MessageAlreadySettled", "business_rule"),
    (event_hub, "com.microsoft:server-busy", "throttled"),
    (event_hub, "amqp:link:message-size-exceeded", "malformed"),
    (event_hub, "amqp:unauthorized-access", "unauthorized"),
    (event_hub, "amqp:not-found", "not_found"),
    (event_hub, "com.microsoft:timeout", "transient"),
    (event_hub_class, "AuthenticationError", "unauthorized, waits"),
    (event_hub_class, "EventDataError", "malformed"),
    (event_hub_class, "OwnershipLostError", "business_rule"),
    (event_hub_class, "ConnectionLostError", "transient"),
    (mongo, {"code": 11000}, "business_rule"),
    (mongo, {"code": 121}, "business_rule"),
    (mongo, {"code": 112, "errorLabels": ["TransientTransactionError"]}, "transient"),
    (mongo, {"code": 462, "errorLabels": ["SystemOverloadedError", "RetryableError"]}, "throttled"),
    (mongo, {"code": 10107}, "transient"),
    (mongo, {"code": 50}, "transient"),
    (mongo, {"code": 9}, "malformed"),
    (mongo, {"code": 13}, "unauthorized"),
    (mongo, {"code": 18}, "unauthorized, waits"),
    (mongo_away, NOBODY, "transient"),
    (mongo_away, "", "malformed"),
    (bson_of, {"set": {1, 2}}, "malformed"),
    (redis, "LOADING the data set", "transient"),
    (redis, "BUSY Redis is busy running a script", "transient"),
    (redis, "MISCONF errors writing to disk", "transient"),
    (redis, "OOM command not allowed", "transient"),
    (redis, "READONLY a replica", "transient"),
    (redis, "MASTERDOWN link with master is down", "transient"),
    (redis, "MOVED 3999 127.0.0.1:6381", "transient"),
    (redis, "ERR unknown command", "malformed"),
    (redis, "WRONGTYPE of a list", "malformed"),
    (redis, "WRONGPASS no", "unauthorized, waits"),
    (redis, "NOPERM no", "unauthorized"),
    (redis_class, "LockNotOwnedError", "business_rule"),
    (redis_class, "WatchError", "transient"),
    (redis_away, NOBODY, "transient"),
    (postgres, "23505", "business_rule"),
    (postgres, "40P01", "transient"),
    (postgres, "53300", "transient"),
    (postgres, "57P01", "transient"),
    (postgres, "25006", "transient"),
    (postgres, "42P01", "malformed"),
    (postgres, "22P02", "malformed"),
    (postgres, "42501", "unauthorized"),
    (postgres, "28P01", "unauthorized, waits"),
    (postgres_away, NOBODY, "transient"),
    (postgres_by_sqlalchemy, "28P01", "unauthorized, waits"),
    (postgres_by_sqlalchemy, "42501", "unauthorized"),
    (postgres_by_sqlalchemy, "40001", "transient"),
    (sqlite, "INSERT INTO orders VALUES (1), (1)", "business_rule"),
    (sqlite, "SELEKT", "transient"),
    (aws_without_credentials, "", "unauthorized, waits"),
    (s3, f"http://{NOBODY}", "transient"),
    (openai, f"http://{NOBODY}", "transient"),
    (anthropic, f"http://{NOBODY}", "transient"),
    (stripe, f"http://{NOBODY}", "transient"),
    (httpx2, f"http://{NOBODY}", "transient"),
    (httpx2, "ftp://127.0.0.1", "malformed"),
    (requests, f"http://{NOBODY}", "transient"),
    (requests, "ftp://127.0.0.1", "malformed"),
    (blob, f"http://{NOBODY}", "transient"),
    (openai_finish, "LengthFinishReasonError", "malformed"),
    (openai_finish, "ContentFilterFinishReasonError", "business_rule"),
    (from_("anthropic"), "CredentialsError", "unauthorized, waits"),
    (from_("google.auth.exceptions"), "RefreshError", "unauthorized, waits"),
    (from_("google.auth.exceptions"), "TransportError", "transient"),
    (from_("google.api_core.exceptions"), "Aborted", "transient"),
    (from_("aiohttp"), "NonHttpUrlClientError", "malformed"),
    (from_("aiohttp"), "ServerDisconnectedError", "transient"),
    (from_("azure.core.exceptions"), "ClientAuthenticationError", "unauthorized, waits"),
]


@pytest.mark.parametrize(("ask", "given", "category"), BY_CLASS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_what_carries_none_is_known_by_its_class_or_code(
    ask: Callable[[Any], Any], given: Any, category: str
) -> None:
    assert summary(await outcome_of(partial(ask, given))) == (category, None)


async def test_a_code_can_be_classified(url: str) -> None:
    config = parse_config(
        f"""
        [dependencies.safe]
        base_url = "{url}"
        [dependencies.safe.classify]
        "botocore.ClientError.ValidationException" = "transient"
        "APIError.insufficient_quota" = "business_rule"
        """,
        {},
    )
    Refusing.answer = Answer(400, {}, aws("ValidationException"))
    with using(config):
        assert summary(await outcome_of(partial(dynamodb, url))) == ("transient", None)
        Refusing.answer = Answer(429, THROTTLE, {"error": {"message": "pay", "code": "insufficient_quota"}})
        assert summary(await outcome_of(partial(openai, url)))[0] == "business_rule"


async def test_what_the_error_of_a_library_was_wrapped_in_is_read_as_that_answer(url: str) -> None:
    def ask() -> None:
        try:
            openai(url)
        except Exception as error:
            raise RuntimeError("the agent gave up") from error

    Refusing.answer = Answer(429, THROTTLE, QUOTA)
    outcome = await outcome_of(ask)
    assert summary(outcome) == ("throttled", 40)
    assert outcome.error == "RuntimeError: the agent gave up, by RateLimitError: Rate limit reached"


# --- examples/model.py


def completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


async def test_a_model_is_asked_again_when_it_says_and_what_it_answered_is_kept(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    registry._handlers.clear()
    model = reload(library("examples.model"))
    paid, limited = Answer(200, {}, completion("1. Tides")), Answer(429, THROTTLE, QUOTA)
    monkeypatch.setattr(Refusing, "before", [paid, limited])
    Refusing.answer = Answer(200, {}, completion("Tides rise."))
    run = await run_orchestrator(
        model.research, "tides", {}, config='[dependencies.model]\nretry = {preset = "rate_limited"}'
    )
    assert run.result == "Tides rise."
    (operation,) = run.operations
    assert operation.attempt_count == 2
    assert sum(operation.waits) >= 40
    assert [(step["name"], step["attempts"]) for step in operation.steps] == [("outline", 1), ("report", 2)]
