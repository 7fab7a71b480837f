"""The deployed app under Azure's worker for Python 3.13: indexed, loaded, invoked over the worker's contract.

The Functions host itself cannot be had here: this is its side of the gRPC stream, and
`tests/integration/deployment/azure_worker.py` does what the worker does with its packages and the app's.
"""

import base64
import json
import os
import queue
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import grpc
import pytest
from durabletask.testing import create_test_backend

from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.history import AttemptOutcome
from scripts.package import write
from scripts.processes import ROOT, free_port
from tests.integration.deployment.function_rpc import EVENT_STREAM, PACKAGE, make_messages
from tests.support.azurite import Storage
from tests.support.builders import an_operation
from tests.support.hub import binding_for
from tests.support.packages import install_packages

pytestmark = pytest.mark.long

WORKER = ROOT / "tests" / "integration" / "deployment" / "azure_worker.py"
# Those of the worker for Python 3.13: workers/pyproject.toml of Azure/azure-functions-python-worker.
WORKERS_OWN = (
    "protobuf~=5.29.0",
    "grpcio~=1.70.0",
    "azure-functions==1.24.0",
    "azure-functions-runtime==1.1.0",
    "uvloop~=0.21.0",
)
LIBRARY = "azure_functions_runtime"
PINNED = "1.3.0"
OLDEST = "1.1.1"
OPEN_TELEMETRY = {
    "AzureFunctionsJobHost__telemetryMode": "OpenTelemetry",
    "PYTHON_ENABLE_OPENTELEMETRY": "true",
}
"""What `HOST_TELEMETRY=openTelemetry` sets; infra/modules/settings.bicep."""
TRACE_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ANSWER_SECONDS = 120
TARGET_PORT = free_port()

rpc = make_messages()


class Host:
    """The host's side of one worker's stream."""

    def __init__(self) -> None:
        self._sent: queue.Queue[Any] = queue.Queue()
        self._received: queue.Queue[Any] = queue.Queue()
        self._numbers = count(1)

    def stream(self, received: Iterator[Any], _context: Any) -> Iterator[Any]:
        """Serve the worker that connects."""
        threading.Thread(target=self._receive, args=[received], daemon=True).start()
        return iter(self._sent.get, None)

    def _receive(self, received: Iterator[Any]) -> None:
        try:
            for each in received:
                self._received.put(each)
        except grpc.RpcError:
            pass  # The worker has ended.

    def ask(self, **content: Any) -> Any:
        """Send a message and return the content of its answer."""
        number = str(next(self._numbers))
        self._sent.put(rpc.StreamingMessage(request_id=number, **content))
        while (answer := self._received.get(timeout=ANSWER_SECONDS)).request_id != number:
            pass
        return getattr(answer, answer.WhichOneof("content"))

    def end(self) -> None:
        """End the stream, and so the worker."""
        self._sent.put(None)


@dataclass(frozen=True)
class Worker:
    """A worker that has been asked to start with the app.

    Attributes:
        host: What talks to it.
        started: Its answer to the first message.
        metadata: Its answer about the app's functions.
        client: What a `durableClient` binding gives.
    """

    host: Host
    started: Any
    metadata: Any
    client: str

    def function(self, name: str) -> Any:
        return next(each for each in self.metadata.function_metadata_results if each.name == name)

    def invoke(self, name: str, trigger: Any) -> Any:
        """Run a function once; beside its trigger it gets a durable client where it asks for one."""
        function = self.function(name)
        bindings = {each["name"]: each["type"] for each in map(json.loads, function.raw_bindings)}
        data = {
            given: rpc.TypedData(string=self.client) if kind == "durableClient" else trigger
            for given, kind in bindings.items()
            if kind == "durableClient" or kind.endswith("Trigger")
        }
        request = rpc.InvocationRequest(
            invocation_id=name,
            function_id=function.function_id,
            input_data=[rpc.ParameterBinding(name=given, data=value) for given, value in data.items()],
            trace_context=rpc.RpcTraceContext(trace_parent=TRACE_PARENT),
        )
        return self.host.ask(invocation_request=request)


def succeeded(answer: Any) -> Any:
    assert answer.result.status == rpc.StatusResult.Success, answer.result.exception
    return answer


def install(folder: Path, *packages: str) -> Path:
    options = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), *packages], check=True
    )
    return folder


@pytest.fixture(scope="module")
def workers_own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that the platform's worker brings."""
    return install(tmp_path_factory.mktemp("worker"), *WORKERS_OWN)


@pytest.fixture(scope="module")
def start(
    tmp_path_factory: pytest.TempPathFactory, workers_own: Path, azurite: Storage
) -> Iterator[Callable[..., Worker]]:
    """Starts a worker with the deployed app and a version of the library; "" leaves the worker its own."""
    with ExitStack() as running:

        def started(library: str, **settings: str) -> Worker:
            app = tmp_path_factory.mktemp("home") / "wwwroot"
            packages = app / ".python_packages"
            write(app, "storage")
            packages.mkdir()
            install_packages(app, packages)
            if library != PINNED:
                (packages / LIBRARY).unlink()
            if library not in ("", PINNED):
                other = install(
                    tmp_path_factory.mktemp("library"), "--no-deps", f"azure-functions-runtime=={library}"
                )
                (packages / LIBRARY).symlink_to(other / LIBRARY)
            return running.enter_context(serving(app, workers_own, azurite, **settings))

        yield started


@pytest.fixture(scope="module")
def target() -> Iterator[list[str]]:
    """What a target on loopback was asked for; it answers 200."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", TARGET_PORT), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield asked
        server.shutdown()


@contextmanager
def serving(app: Path, workers_own: Path, storage: Storage, **settings: str) -> Iterator[Worker]:
    """Run a worker, and the task hub that its clients talk to."""
    host = Host()
    server = grpc.server(futures.ThreadPoolExecutor())
    handler = grpc.stream_stream_rpc_method_handler(
        host.stream, rpc.StreamingMessage.FromString, rpc.StreamingMessage.SerializeToString
    )
    name = EVENT_STREAM.rpartition("/")[2]
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(f"{PACKAGE}.FunctionRpc", {name: handler})]
    )
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    hub_port = free_port()
    hub = create_test_backend(port=hub_port)
    environment = {
        "PATH": os.environ["PATH"],
        "AzureWebJobsStorage": storage.connection_string,
        "FLAKY_TARGET_URL": f"http://127.0.0.1:{TARGET_PORT}",
        **settings,
    }
    command = [
        sys.executable,
        "-I",
        "-S",
        "-B",
        str(WORKER),
        address,
        str(workers_own),
        str(app / ".python_packages"),
    ]
    process = subprocess.Popen(command, env=environment, cwd=app)
    try:
        folder = {"function_app_directory": str(app)}
        begun = host.ask(worker_init_request=rpc.WorkerInitRequest(host_version="4", **folder))
        metadata = host.ask(functions_metadata_request=rpc.FunctionsMetadataRequest(**folder))
        yield Worker(host, begun, metadata, binding_for(hub_port).configuration)
    finally:
        host.end()
        process.terminate()
        process.wait(ANSWER_SECONDS)
        server.stop(None)
        hub.stop()


@pytest.fixture(
    scope="module",
    params=[(PINNED, {}), (PINNED, OPEN_TELEMETRY), (OLDEST, {})],
    ids=["pinned", "pinned with OpenTelemetry", "oldest"],
)
def worker(request: pytest.FixtureRequest, start: Callable[..., Worker]) -> Worker:
    library, settings = request.param
    return start(library, **settings)


def http(method: str, path: str, body: Any = None) -> Any:
    content = rpc.TypedData(bytes=json.dumps(body).encode()) if body is not None else None
    headers = {"content-type": "application/json", "host": "app.invalid"}
    return rpc.TypedData(
        http=rpc.RpcHttp(method=method, url=f"https://app.invalid/api/{path}", headers=headers, body=content)
    )


def test_the_worker_keeps_its_own_protobuf_and_the_app_gets_its_own(worker: Worker) -> None:
    modules = dict(each.split("=") for each in worker.started.capabilities["modules"].split(","))
    assert modules["google.protobuf"] != worker.started.capabilities["workers protobuf"]
    assert worker.started.capabilities["workers protobuf"].startswith("5.29.")
    assert worker.started.result.status == rpc.StatusResult.Success


def test_every_function_is_indexed_and_loaded(worker: Worker) -> None:
    assert worker.metadata.result.status == rpc.StatusResult.Success
    found = {each.name: each for each in worker.metadata.function_metadata_results}
    assert {"api_operations", "operations_queue", "operations_event_grid", "operation", "attempt"} <= set(
        found
    )
    assert {"circuit_breaker", "idempotency_record", "call_limiter"} <= set(found)
    for function in found.values():
        loaded = worker.host.ask(
            function_load_request=rpc.FunctionLoadRequest(function_id=function.function_id, metadata=function)
        )
        assert loaded.result.status == rpc.StatusResult.Success


def test_timers_carry_their_retries(worker: Worker) -> None:
    assert worker.function("maintenance").retry_options.max_retry_count != 0


def test_a_request_is_answered_and_starts_an_orchestration(worker: Worker) -> None:
    operation = {"dependency": "flaky", "request": {"method": "GET", "path": "/"}, "key": "contract"}
    answer = succeeded(worker.invoke("api_operations", http("POST", "operations", operation)))
    assert answer.return_value.http.status_code == "202"
    accepted = json.loads(answer.return_value.http.body.bytes or answer.return_value.http.body.string)
    assert accepted["key"] == "contract"


def test_a_message_that_is_no_operation_becomes_a_dead_letter(worker: Worker) -> None:
    succeeded(worker.invoke("operations_queue", rpc.TypedData(string="no operation")))
    listed = succeeded(worker.invoke("api_dead_letters", http("GET", "dead-letters")))
    assert listed.return_value.http.status_code == "200"
    assert "MalformedJson" in (
        listed.return_value.http.body.string or listed.return_value.http.body.bytes.decode()
    )


def test_a_timer_runs(worker: Worker) -> None:
    due = {"Schedule": {"AdjustForDST": True}, "ScheduleStatus": None, "IsPastDue": False}
    succeeded(worker.invoke("watch", rpc.TypedData(json=json.dumps(due))))


def test_an_event_of_event_grid_starts_an_operation(worker: Worker) -> None:
    event = {
        "id": "1",
        "topic": "topic",
        "subject": "order",
        "eventType": "order.placed",
        "eventTime": "2026-01-01T00:00:00Z",
        "dataVersion": "1",
        "data": {"dependency": "flaky", "request": {"method": "GET", "path": "/"}},
    }
    succeeded(worker.invoke("operations_event_grid", rpc.TypedData(json=json.dumps(event))))


def test_an_orchestrator_takes_its_first_turn(worker: Worker) -> None:
    events = [
        pb.HistoryEvent(orchestratorStarted=pb.OrchestratorStartedEvent()),
        pb.HistoryEvent(
            executionStarted=pb.ExecutionStartedEvent(
                name="release_waiting",
                orchestrationInstance=pb.OrchestrationInstance(instanceId="contract"),
            )
        ),
    ]
    for event in events:
        event.timestamp.GetCurrentTime()
    events[1].executionStarted.input.value = json.dumps({"dependency": "flaky", "hand": {}})
    request = pb.OrchestratorRequest(instanceId="contract", newEvents=events)
    text = base64.b64encode(request.SerializeToString()).decode()
    answer = succeeded(worker.invoke("release_waiting", rpc.TypedData(string=text)))
    turn = pb.OrchestratorResponse.FromString(base64.b64decode(answer.return_value.string))
    assert [action.WhichOneof("orchestratorActionType") for action in turn.actions] == ["sendEntityMessage"]


def test_an_entity_runs_a_batch(worker: Worker) -> None:
    request = pb.EntityBatchRequest(
        instanceId="@call_limiter@flaky",
        operations=[pb.OperationRequest(operation="no-such-operation", requestId="1")],
    )
    text = base64.b64encode(request.SerializeToString()).decode()
    answer = succeeded(worker.invoke("call_limiter", rpc.TypedData(string=text)))
    batch = pb.EntityBatchResult.FromString(base64.b64decode(answer.return_value.string))
    assert [result.WhichOneof("resultType") for result in batch.results] == ["failure"]


def test_an_activity_runs(worker: Worker) -> None:
    request = {"batch_id": "none", "index": 0}
    answer = worker.invoke(
        "outbox_pending", rpc.TypedData(json=json.dumps({"operation_id": "none", "run": 1}))
    )
    assert succeeded(answer).return_value.WhichOneof("data") is not None, request


def test_an_attempt_calls_its_dependency_on_the_event_loop_of_the_worker(
    worker: Worker, target: list[str]
) -> None:
    assert worker.started.capabilities["event loop"] == "uvloop"
    operation = an_operation(
        operation_id=f"op-{uuid.uuid4().hex}",
        dependency="flaky",
        created_at=datetime.now(UTC),
        deadline_in=None,
    )
    call = {"operation": operation.to_json(), "run": 1, "attempt": 1, "admission": AdmissionState().to_json()}
    answer = succeeded(worker.invoke("attempt", rpc.TypedData(json=json.dumps(call))))
    outcome = AttemptOutcome.from_json(json.loads(answer.return_value.json))
    assert (outcome.category, outcome.status_code) == (None, 200), outcome.error
    assert target[-1] == "POST /charges"


def test_an_older_library_of_the_platform_indexes_nothing(start: Callable[..., Worker]) -> None:
    """Why `requirements.txt` pins the library."""
    worker = start("")
    assert worker.started.capabilities["library"] == "1.1.0"
    assert worker.started.result.status == rpc.StatusResult.Failure
    assert "Duration" in worker.started.result.exception.message
    assert not worker.metadata.function_metadata_results
