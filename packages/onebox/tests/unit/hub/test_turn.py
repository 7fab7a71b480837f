import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.hub import events
from onebox.hub.events import events_in
from onebox.hub.model import Head, Kind, Message, Parent, Status
from onebox.hub.turn import Ended, Renewed, Turn, choose, interpret

NOW_US = 1_767_225_600_000_000


def head(status: Status = Status.RUNNING, turn: int = 1, parent: Parent | None = None) -> Head:
    return Head("i", "e", turn, "name", "1.0", status, "1", '{"a": "b"}', parent)


def message(kind: Kind, seq: int = 1, frame: bytes = b"") -> Message:
    return Message(seq, "i", kind, NOW_US, frame)


def read(response: pb.OrchestratorResponse, of: Head | None = None, *taken: Message) -> Turn:
    return interpret(of or head(), taken, events.orchestrator_started(NOW_US), response, NOW_US)


def answer(*actions: pb.OrchestratorAction) -> pb.OrchestratorResponse:
    return pb.OrchestratorResponse(actions=actions)


def failure_of(turn: Turn) -> bytes:
    assert isinstance(turn.outcome, Ended)
    return turn.outcome.failure or b""


def kinds(turn: Turn) -> list[str]:
    return [event.WhichOneof("eventType") for event in events_in(turn.history)]


class TestChoose:
    def test_an_execution_begins_with_its_start(self) -> None:
        event, start = message(Kind.EVENT, 1), message(Kind.START, 2)
        assert choose(head(Status.PENDING, turn=0), [event, start]) == [start, event]

    def test_nothing_happens_before_the_start(self) -> None:
        assert choose(head(Status.PENDING, turn=0), [message(Kind.EVENT)]) == []

    def test_a_rewind_is_a_turn_of_its_own(self) -> None:
        event, rewind = message(Kind.EVENT, 1), message(Kind.REWIND, 2)
        assert choose(head(), [event, rewind]) == [rewind]

    def test_a_suspended_instance_leaves_everything(self) -> None:
        assert choose(head(Status.SUSPENDED), [message(Kind.EVENT), message(Kind.RESULT)]) == []

    def test_a_resumed_instance_takes_everything(self) -> None:
        both = [message(Kind.EVENT, 1), message(Kind.RESUME, 2)]
        assert choose(head(Status.SUSPENDED), both) == both

    def test_a_suspended_instance_can_be_terminated(self) -> None:
        assert choose(head(Status.SUSPENDED), [message(Kind.TERMINATE)]) != []

    def test_a_finished_instance_takes_nothing(self) -> None:
        assert choose(head(Status.FAILED), [message(Kind.EVENT)]) == []


class TestInterpret:
    def test_an_activity_is_recorded_and_scheduled(self) -> None:
        action = pb.OrchestratorAction(id=3, scheduleTask=pb.ScheduleTaskAction(name="work"))
        action.scheduleTask.input.value = "7"
        turn = read(answer(action))
        assert kinds(turn) == ["orchestratorStarted", "taskScheduled", "orchestratorCompleted"]
        assert [(task.task_id, task.name, task.input) for task in turn.tasks] == [(3, "work", "7")]

    def test_a_timer_is_a_delayed_message_to_itself(self) -> None:
        due_us = NOW_US + 1_500_000
        action = pb.OrchestratorAction(
            id=2, createTimer=pb.CreateTimerAction(fireAt=events.timestamp(due_us))
        )
        turn = read(answer(action))
        (post,) = turn.posts
        assert (post.target, post.due_us, post.execution_id) == ("i", due_us, "e")
        (fired,) = events_in(post.events)
        assert fired.timerFired.timerId == 2

    def test_a_completion_ends_the_history_and_notifies_the_parent(self) -> None:
        complete = pb.CompleteOrchestrationAction(orchestrationStatus=pb.ORCHESTRATION_STATUS_COMPLETED)
        complete.result.value = '"done"'
        action = pb.OrchestratorAction(id=9, completeOrchestration=complete)
        turn = read(answer(action), head(parent=Parent("p", "pe", 4)))
        assert turn.status is Status.COMPLETED
        assert turn.outcome == Ended('"done"', None)
        assert kinds(turn)[-2:] == ["orchestratorCompleted", "executionCompleted"]
        (post,) = turn.posts
        assert (post.target, post.execution_id) == ("p", "pe")
        (event,) = events_in(post.events)
        assert event.subOrchestrationInstanceCompleted.taskScheduledId == 4

    def test_a_termination_is_a_failure_to_the_parent(self) -> None:
        complete = pb.CompleteOrchestrationAction(orchestrationStatus=pb.ORCHESTRATION_STATUS_TERMINATED)
        action = pb.OrchestratorAction(id=9, completeOrchestration=complete)
        turn = read(answer(action), head(parent=Parent("p", "pe", 4)))
        (event,) = events_in(turn.posts[0].events)
        assert (
            event.subOrchestrationInstanceFailed.failureDetails.errorMessage
            == "Sub-orchestration ended terminated"
        )

    def test_continuing_as_new_carries_events_and_tags_over(self) -> None:
        carried = events.event(NOW_US, eventRaised=pb.EventRaisedEvent(name="go"))
        complete = pb.CompleteOrchestrationAction(
            orchestrationStatus=pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW, carryoverEvents=[carried]
        )
        complete.result.value = "2"
        turn = read(answer(pb.OrchestratorAction(id=5, completeOrchestration=complete)))
        assert isinstance(turn.outcome, Renewed)
        assert turn.outcome.execution_id != "e"
        started, event = events_in(turn.outcome.begin)
        assert started.executionStarted.input.value == "2"
        assert started.executionStarted.version.value == "1.0"
        assert dict(started.executionStarted.tags) == {"a": "b"}
        assert event == carried

    def test_the_last_of_suspend_and_resume_decides(self) -> None:
        suspend, resume = message(Kind.SUSPEND, 1), message(Kind.RESUME, 2)
        assert read(answer(), head(), suspend).status is Status.SUSPENDED
        assert read(answer(), head(), suspend, resume).status is Status.RUNNING

    def test_the_first_turn_makes_a_pending_instance_run(self) -> None:
        assert read(answer(), head(Status.PENDING, turn=0)).status is Status.RUNNING

    def test_a_custom_status_that_is_not_set_is_none(self) -> None:
        assert read(answer()).custom_status is None

    def test_an_entity_call_says_which_execution_asks(self) -> None:
        called = pb.EntityOperationCalledEvent(requestId="r", operation="add")
        called.targetInstanceId.value = "@counter@x"
        called.parentInstanceId.value = "i"
        action = pb.OrchestratorAction(
            id=4, sendEntityMessage=pb.SendEntityMessageAction(entityOperationCalled=called)
        )
        turn = read(answer(action))
        (post,) = turn.posts
        assert (post.target, post.kind) == ("@counter@x", Kind.OPERATION)
        (sent,) = events_in(post.events)
        assert sent.entityOperationCalled.parentExecutionId.value == "e"

    def test_an_action_that_the_hub_cannot_read_fails_its_orchestration(self) -> None:
        turn = read(answer(pb.OrchestratorAction(id=1)))
        assert turn.status is Status.FAILED
        assert b"does not support this action" in failure_of(turn)

    def test_a_child_whose_id_is_an_entitys_fails_its_parent(self) -> None:
        child = pb.CreateSubOrchestrationAction(instanceId="@counter@a", name="child")
        turn = read(answer(pb.OrchestratorAction(id=1, createSubOrchestration=child)))
        assert turn.status is Status.FAILED
        assert b"must not begin with '@': '@counter@a'" in failure_of(turn)
        assert turn.children == []
