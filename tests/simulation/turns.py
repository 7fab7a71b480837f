"""Runs turns of orchestrators in the SDK's executor, without the encoding of a host's requests and responses.

The platform replays the whole history in every turn. A session keeps what a replay would rebuild and feeds it
only what came since, as the platform's own extended sessions do elsewhere; a world that runs in milliseconds
needs that. A turn that is repeated is always replayed, and so is any turn now and then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.worker import _OrchestrationExecutor, _RuntimeOrchestrationContext


@dataclass
class Session:
    """An execution as it stands after its last turn.

    Attributes:
        fed: How many events of its history it has seen.
    """

    executor: _OrchestrationExecutor
    context: _RuntimeOrchestrationContext
    fed: int = 0

    def feed(self, events: Sequence[pb.HistoryEvent], *, is_replaying: bool) -> None:
        """Process events; an error fails the orchestration, as it does in the executor."""
        self.context._is_replaying = is_replaying
        try:
            for event in events:
                self.executor.process_event(self.context, event)
        except Exception as error:  # noqa: BLE001 - whatever an orchestrator raises
            self.context.set_failed(error)
        self.fed += len(events)


@dataclass
class Turns:
    """Executes turns.

    Attributes:
        orchestrators: By name.
    """

    orchestrators: Mapping[str, Any]
    _worker: DurableFunctionsWorker = field(default_factory=DurableFunctionsWorker)

    def __post_init__(self) -> None:
        for name, orchestrator in self.orchestrators.items():
            self._worker._register_orchestrator_once(name, orchestrator)

    def replayed(self, name: str, request: pb.OrchestratorRequest) -> pb.OrchestratorResponse:
        """Return the answer to a turn, from a replay of the whole history."""
        return self._worker._run_orchestration(self.orchestrators[name], request)

    def begun(self, name: str, instance_id: str) -> Session:
        """Return a session of an orchestrator that has seen nothing."""
        worker = self._worker
        converter, logger, interval = worker._data_converter, worker._logger, worker.maximum_timer_interval
        executor = _OrchestrationExecutor(
            worker._registry, logger, maximum_timer_interval=interval, data_converter=converter
        )
        executor._orchestration_name = name
        return Session(
            executor,
            _RuntimeOrchestrationContext(
                instance_id,
                worker._registry,
                maximum_timer_interval=interval,
                data_converter=converter,
                logger=logger,
            ),
        )

    def continued(
        self, session: Session, past: Sequence[pb.HistoryEvent], new: Sequence[pb.HistoryEvent]
    ) -> pb.OrchestratorResponse:
        """Return the answer to a turn of a session."""
        session.feed(past[session.fed :], is_replaying=True)
        session.feed(new, is_replaying=False)
        context = session.context
        status = helpers.get_string_value(context._encoded_custom_status)
        return pb.OrchestratorResponse(
            instanceId=context.instance_id, actions=context.get_actions(), customStatus=status
        )
