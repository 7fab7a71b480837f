"""The composition root: builds every component of one loaded app and connects them."""

import asyncio
import os
import random
from dataclasses import replace
from typing import Final, Protocol

from azure.core.exceptions import AzureError
from starlette.requests import Request
from starlette.responses import Response

from onebox import CannotStartError
from onebox.clock import Clock
from onebox.data_folder import DataFolder
from onebox.durable_task import DurableTask
from onebox.environment import QUEUES, STORAGE, AppSettings, queue_names
from onebox.faults import HostFaults, no_faults
from onebox.host_json import HostJson, Http, Queues
from onebox.http.access import Browsers
from onebox.http.functions import Endpoint, HttpFunctions, endpoints
from onebox.http.keys import Keys
from onebox.http.management import ManagementApi
from onebox.http.messages import body_limit_bytes
from onebox.http.server import Admin, Application
from onebox.http.streams import StreamedAnswers
from onebox.hub import Hub, HubSettings
from onebox.hub.invoker import Invoker
from onebox.hub.settings import Versioning
from onebox.semantics import azure_terms
from onebox.storage.account import StorageAccount
from onebox.storage.blobs import Blobs
from onebox.storage.queues import StorageQueues
from onebox.triggers.event_grid import EVENT_GRID_PATH, EventGridWebhook
from onebox.triggers.manual import ManualTriggers
from onebox.triggers.queue_trigger import queue_listeners
from onebox.triggers.retrying import RetryingRunner
from onebox.triggers.timer import TimerRecords, timers
from onebox.worker import wire
from onebox.worker.durable import WEBHOOK_PATH, BindingInputs, DurableClients, DurableInvoker, DurableUrls
from onebox.worker.functions import Catalogue
from onebox.worker.outputs import Outputs, StorageOutputs
from onebox.worker.processes import WorkerProcesses
from onebox.worker.remote import NoInputs, RemoteInvoker, RemoteRunner, RemoteStreams, client_calls
from onebox.worker.runner import FunctionRunner, Runner
from onebox.worker.streams import Streams, http_streams

# The answer is sent within a few passes of the event loop. But where cores are few, the kernel lets a client
# on this machine read it only once this thread sleeps, not while it runs what the client has started.
# The event loop's timers count whole milliseconds: of 1 ms hardly anything may be left.
_HEAD_START_SECONDS: Final = 0.002
_RIDE_SECONDS: Final = 0.004  # about a client's turnaround; more would only delay what the group wakes


class Trigger(Protocol):
    """A component that fetches work by itself."""

    def start(self) -> None:
        """Start fetching."""
        ...

    async def stop(self, seconds: float) -> None:
        """Stop fetching and wait up to `seconds` for what runs."""
        ...


class Components:
    """All components of one app, not started.

    An app runs on another task hub where `start_hub` and `stop_hub` are overridden, and the class handed to
    `Host`: `runner` runs the functions of the `catalogue`, and `inputs` take what `clients` describes.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        host_json: HostJson,
        data: DataFolder,
        *,
        keys: Keys,
        browsers: Browsers,
        account: StorageAccount,
        clock: Clock,
        stop_seconds: float,
        faults: HostFaults = no_faults,
        processes: WorkerProcesses | None = None,
    ) -> None:
        extensions = host_json.extensions
        self.catalogue = catalogue
        self.account = account
        self._keys = keys
        self._clock = clock
        self._faults = faults
        self._durable = extensions.durable_task
        self.settings = AppSettings(os.environ)
        self._queue_names = queue_names(os.environ)
        self.storage_queues = StorageQueues()
        self.processes = processes
        self._choose_where_functions_run(catalogue, host_json, processes)
        self.blobs = Blobs(clock)
        storage_outputs = StorageOutputs(
            self.settings, self.storage_queues, self.blobs, extensions.queues, clock
        )
        self.outputs = Outputs(storage_outputs.senders)
        self._azure = azure_terms(self.settings, self._durable.storage_provider)
        asked = _hub_settings(self._durable, stop_seconds)
        limits = replace(asked, azure=self._azure)
        self.hub = Hub(data.hub, self.invoker, clock, limits, faults, socket=data.socket)
        found = endpoints(catalogue, extensions.http)
        self.functions = self._http_functions(found, extensions.http)
        self.retrying = RetryingRunner(self.runner, self.outputs, clock, random.random)
        self.admin = self._admin(found)
        self.application = Application(
            self.functions, self.admin, keys, browsers, body_limit_bytes(self.settings)
        )
        event_grid = EventGridWebhook(catalogue, self.retrying, self.inputs)
        self.application.webhooks[EVENT_GRID_PATH] = event_grid.answer
        self.triggers: tuple[Trigger, ...] = (
            *self._queue_listeners(extensions.queues),
            *self._timers(TimerRecords(data.timers)),
        )

    def _choose_where_functions_run(
        self, catalogue: Catalogue, host_json: HostJson, processes: WorkerProcesses | None
    ) -> None:
        """Set what runs functions: this process, or worker processes."""
        self.runner: FunctionRunner
        self.invoker: Invoker
        self.inputs: BindingInputs
        self.streams: Streams | None = None
        if processes is not None:
            self.runner, self.inputs = RemoteRunner(processes), NoInputs()
            self.invoker = RemoteInvoker(catalogue, processes, self._faults)
            if processes.streams:
                self.streams = RemoteStreams(processes)
            return
        self.inputs, self.streams = BindingInputs(), http_streams(catalogue)
        self.runner = runner = Runner(self._clock, host_json.function_timeout)
        self.invoker = DurableInvoker(catalogue, runner, self.inputs, self._faults)

    def _http_functions(self, found: tuple[Endpoint, ...], http: Http) -> HttpFunctions:
        functions = HttpFunctions(
            found,
            self.runner,
            self.inputs,
            self.outputs,
            http,
            faults=self._faults,
        )
        if self.streams is not None:
            functions.streamed = StreamedAnswers(self.streams, http.custom_headers)
        return functions

    def _admin(self, found: tuple[Endpoint, ...]) -> Admin:
        processes = self.processes
        return Admin(
            self.catalogue,
            found,
            ManualTriggers(self.retrying, self.inputs, self._clock, self.settings),
            storage=self.account.described,
            trouble=lambda: (
                self.hub.trouble or self.account.trouble or ("" if processes is None else processes.trouble)
            ),
            workers=None if processes is None else processes.described,
            clock=self._clock,
        )

    def _queue_listeners(self, queues: Queues) -> tuple[Trigger, ...]:
        return queue_listeners(
            self.catalogue,
            queues,
            settings=self.settings,
            storage=self.storage_queues,
            runner=self.runner,
            inputs=self.inputs,
            outputs=self.outputs,
            clock=self._clock,
            draw=random.random,
            faults=self._faults,
        )

    def _timers(self, records: TimerRecords) -> tuple[Trigger, ...]:
        return timers(
            self.catalogue,
            settings=self.settings,
            inputs=self.inputs,
            retrying=self.retrying,
            records=records,
            clock=self._clock,
            faults=self._faults,
        )

    async def start_hub(self, base_url: str) -> None:
        """Start the task hub on this event loop, and the clients and the management API on it.

        Args:
            base_url: Where HTTP is served.
        """
        await self.hub.start(lambda: self._serve_clients(self.clients(base_url, self.hub.grpc_address)))

    async def stop_hub(self) -> None:
        """Stop the task hub, once nothing fetches work."""
        await self.hub.stop()

    async def start_triggers(self) -> None:
        """Create the queues that were asked for, and start queue listeners and timers.

        Raises:
            CannotStartError: The connection string is missing or broken, or storage does not answer.
        """
        for name in self._queue_names:
            connection = self.settings.connection(None, where=QUEUES.name)
            try:
                await self.storage_queues.open(connection, name).create()
            except (ValueError, AzureError) as error:
                problem = str(error).partition("\n")[0]
                raise CannotStartError(
                    f"queue {name} of {QUEUES.name} cannot be created: {problem}; see {STORAGE.name}"
                ) from None
        for each in self.triggers:
            each.start()

    async def stop_triggers(self, seconds: float) -> None:
        """Stop fetching work and wait up to `seconds` for what runs."""
        self.retrying.stop()
        await asyncio.gather(*(each.stop(seconds) for each in self.triggers))

    async def close(self) -> None:
        """Stop the task hub, and let go of connections to storage."""
        await self.stop_hub()
        self.storage_queues.close()
        await self.blobs.close()

    def clients(self, base_url: str, rpc_address: str) -> DurableClients:
        """Return what durable clients of the app are given.

        Args:
            base_url: Where HTTP is served.
            rpc_address: The task hub's gRPC service, `host:port`.
        """
        hub_name = self.settings.expand(
            self._durable.hub_name, where="host.json extensions.durableTask.hubName"
        )
        most = self._durable.max_grpc_message_size_in_bytes
        urls = DurableUrls(base_url, hub_name, self._keys.system)
        return DurableClients(urls, rpc_address, most, starts_are_atomic=self._azure is None)

    async def _serve_clients(self, clients: DurableClients) -> None:
        """Give durable clients, also those in worker processes, and the management API their addresses."""
        datum, address = clients.datum(), self.hub.grpc_address
        self.hub.serve_locally()
        self.inputs.serve_clients(datum)
        if self.processes is not None:
            self.processes.handlers[wire.CLIENT] = client_calls(address)
            await self.processes.serve_clients(address, datum.value)
        api = ManagementApi(self.hub.tasks, clients.urls, self.invoker.orchestrators)

        async def answer(request: Request) -> Response:
            await request.body()  # the request keeps it
            return await api.answer(request)

        self.application.webhooks[WEBHOOK_PATH] = answer


def _hub_settings(durable: DurableTask, stop_seconds: float) -> HubSettings:
    default = HubSettings()
    return HubSettings(
        max_turns=durable.max_concurrent_orchestrator_functions or default.max_turns,
        max_batches=durable.max_concurrent_entity_functions or default.max_batches,
        max_activities=durable.max_concurrent_activity_functions or default.max_activities,
        max_batch_operations=durable.max_entity_operation_batch_size or default.max_batch_operations,
        versioning=Versioning(
            durable.default_version, durable.version_match_strategy, durable.version_failure_strategy
        ),
        replaceable=durable.replaceable,
        drops_entity_messages=durable.drops_entity_messages,
        ride_seconds=_RIDE_SECONDS,
        head_start_seconds=_HEAD_START_SECONDS,
        stop_seconds=stop_seconds,
    )
