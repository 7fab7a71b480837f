import base64

from durabletask.internal import orchestrator_service_pb2 as pb

from bench.app_cost import turns_of
from bench.plain_turn import plain_turn_seconds


def began() -> pb.HistoryEvent:
    return pb.HistoryEvent(orchestratorStarted=pb.OrchestratorStartedEvent())


def test_a_plain_turn_takes_processor_time() -> None:
    assert plain_turn_seconds(20) > 0


def test_a_turn_sees_all_before_it_and_what_came_new() -> None:
    started = pb.HistoryEvent(executionStarted=pb.ExecutionStartedEvent(name="operation"))
    asked = pb.HistoryEvent(taskScheduled=pb.TaskScheduledEvent(name="attempt"))
    answered = pb.HistoryEvent(taskCompleted=pb.TaskCompletedEvent(taskScheduledId=1))
    ended = pb.HistoryEvent(executionCompleted=pb.ExecutionCompletedEvent())

    turns = [
        pb.OrchestratorRequest.FromString(base64.b64decode(text))
        for text in turns_of("op-1", [began(), started, asked, began(), answered, ended])
    ]

    assert [(list(turn.pastEvents), list(turn.newEvents)) for turn in turns] == [
        ([], [began(), started]),
        ([began(), started, asked], [began(), answered]),
    ]
