import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from azure.core.exceptions import HttpResponseError
from durabletask import task
from durabletask.client import OrchestrationStatus

from durable_retry.base.names import ATTEMPT, ENDED_EVENT, OPERATION, OperationState
from durable_retry.dead_letters.records import keep_operation
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.replay.actions import replay_dead_letter
from durable_retry.features.replay.rules import ReplayBody
from durable_retry.features.retention.histories import purge_others
from durable_retry.features.workflows.names import BATCH, SAGA
from durable_retry.hub.task_hub import TaskHub, close_clients
from durable_retry.operations.actions import Replayed, submit
from durable_retry.operations.entities import read_record
from durable_retry.operations.lone_records import KNOWN_TO_ALL_AFTER
from durable_retry.operations.status import MOST_RESTARTS, document_of, find_status
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.rules.dead_letters.record import KeptDeadLetter, dead_letter_id_of
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import start_input
from durable_retry.rules.operations.status import OperationStatus
from durable_retry.rules.retry.history import History
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.upkeep import failures
from durable_retry.upkeep.failures import Recovery, recover
from durable_retry.upkeep.removal import Past
from durable_retry_console.alerts.lacking import lacking_since
from durable_retry_console.bulk.names import BULK_ACTION
from orchestrators.operation import operation as operation_orchestrator
from tests.support.builders import PAYMENTS, an_operation, failing
from tests.support.hub import TaskHubStage, task_hub_stage
from tests.support.narrowing import existing, of_type
from tests.support.polling import until

pytestmark = pytest.mark.usefixtures("own_tables")

NOW = datetime.now(UTC)
"""The machine's clock, as the task hub's: it removes a record whose time is over."""

CONFIG = Config({"payments": PAYMENTS})


def failing_outright(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any]:
    """Fail as an orchestrator does whose history does not fit the code, after it asked for an attempt.

    As on Azure Storage, nothing of a custom status is left.
    """
    yield ctx.call_activity(ATTEMPT, input={"attempt": 1})
    raise RuntimeError("the history does not fit")


def failing_unless_replayed(ctx: task.OrchestrationContext, given: Any) -> Generator[Any, Any]:
    """Fail outright; wait for ever where a dead letter is replayed."""
    replays = given["operation"].get("replay_of") is not None
    yield from (never_ending if replays else failing_outright)(ctx, given)


def failing_at_once(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any]:
    """Fail before the first attempt."""
    yield ctx.create_timer(timedelta(milliseconds=1))
    raise RuntimeError("it cannot even begin")


def never_ending(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
    """Wait for ever, after it asked for an attempt."""
    yield ctx.call_activity(ATTEMPT, input={"attempt": 1})
    ctx.set_custom_status({"status": "running"})
    return (yield ctx.wait_for_external_event("never"))


def waiting_to_begin(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
    """Wait for ever, before the first attempt."""
    return (yield ctx.wait_for_external_event("never"))


@pytest.fixture(autouse=True)
def clock_at_now() -> Iterator[None]:
    with clock.reading(lambda: NOW):
        yield


@pytest.fixture(autouse=True)
async def clients_closed() -> AsyncIterator[None]:
    yield
    await close_clients()


async def failed(hub: TaskHubStage, instance_id: str, given: dict[str, Any]) -> None:
    await hub.binding.start_instance(OPERATION, instance_id, given, again=False)
    instance = existing(await hub.binding.wait_for_end(instance_id, 20))
    assert instance.runtime_status is OrchestrationStatus.FAILED


async def the_letter() -> KeptDeadLetter:
    (letter,) = (await list_dead_letters(DeadLetterFilter(), limit=10, cursor=None)).records
    return letter


async def purged(hub: TaskHubStage, started_before: datetime) -> int:
    """Go round all instances once; return how many were purged."""
    number, past = 0, Past(hub=hub.binding, now=started_before, before=started_before)
    while True:
        more, after = await purge_others(past)
        number, past = number + more, replace(past, after=after)
        if not after:
            return number


async def swept(hub: TaskHubStage, instance_id: str) -> None:
    """Sweep until the record of the key is complete and the instance purged."""
    assert await recover(hub.binding, NOW) == {Recovery.DEAD_LETTER: 1}
    await until(lambda: read_record(hub.binding, instance_id))
    # Not before every process looks for its record.
    assert await recover(hub.binding, NOW) == {Recovery.NONE: 1}
    assert await recover(hub.binding, NOW + KNOWN_TO_ALL_AFTER) == {Recovery.PURGED: 1}
    assert await hub.binding.read_instance(instance_id) is None


@pytest.mark.shows("P24")
async def test_a_failed_orchestration_becomes_a_dead_letter_before_it_is_purged() -> None:
    with task_hub_stage(instead={OPERATION: failing_outright}) as hub:
        await failed(hub, "op-test", {"operation": an_operation().to_json()})
        assert await purged(hub, datetime.now(UTC) + timedelta(days=1)) == 0
        await swept(hub, "op-test")
        letter = await the_letter()
        assert (letter.operation_id, letter.reason) == ("op-test", "AmbiguousOutcome")
        assert "the history does not fit" in letter.detail
        document = existing(await find_status(hub.binding, "op-test"))
        assert (document["status"], document["dead_letter"]["id"]) == ("dead_lettered", letter.id)


async def test_a_replay_that_the_purge_of_its_failed_run_erased_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with using(CONFIG), task_hub_stage(instead={OPERATION: failing_unless_replayed}) as hub:
        await failed(hub, "op-test", {"operation": an_operation().to_json()})
        assert await recover(hub.binding, NOW) == {Recovery.DEAD_LETTER: 1}
        await until(lambda: read_record(hub.binding, "op-test"))
        letter = await the_letter()
        assert await recover(hub.binding, NOW) == {Recovery.NONE: 1}
        replay_before_purge(letter.id, monkeypatch)
        assert await recover(hub.binding, NOW + KNOWN_TO_ALL_AFTER) == {Recovery.PURGED: 1}
        instance = existing(await hub.binding.read_instance("op-test"))
        assert instance.input["operation"]["replay_of"] == letter.id


def replay_before_purge(dead_letter_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each purge erase a replay that nobody has seen yet."""
    purge = TaskHub.purge_instance

    async def purge_behind_a_replay(self: TaskHub, *given: Any) -> bool:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(TaskHub, "start_operation", AsyncMock(return_value=True))
            await replay_dead_letter(self, dead_letter_id, ReplayBody(), NOW)
        return await purge(self, *given)

    monkeypatch.setattr(TaskHub, "purge_instance", purge_behind_a_replay)


def dead_unless_replayed(ctx: task.OrchestrationContext, given: Any) -> Generator[Any, Any, Any]:
    """End with the dead letter that was kept for it; wait for ever where that is replayed."""
    if given["operation"].get("replay_of") is not None:
        yield from never_ending(ctx, given)
    yield ctx.create_timer(timedelta(milliseconds=1))
    operation = an_operation()
    status = OperationStatus(
        operation=operation, state=OperationState.DEAD_LETTERED, history=History(), updated_at=NOW
    )
    return status.to_json() | {"dead_letter": LETTER | {"id": dead_letter_id_of(operation.to_json())}}


LETTER = {"category": "malformed", "reason": "RejectedByDependency", "detail": "status 400"}


async def test_a_replay_that_retention_erased_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"operation": an_operation().to_json(), "attempts": [], **LETTER}
    with using(CONFIG), task_hub_stage(instead={OPERATION: dead_unless_replayed}) as hub:
        dead_letter_id = await keep_operation(entry, NOW)
        await hub.binding.start_instance(OPERATION, "op-test", start_input(an_operation(), "s"), again=False)
        assert await hub.binding.wait_for_end("op-test", 20) is not None
        replay_before_purge(dead_letter_id, monkeypatch)
        await purged(hub, datetime.now(UTC) + timedelta(days=1))
        instance = existing(await hub.binding.read_instance("op-test"))
        assert instance.input["operation"]["replay_of"] == dead_letter_id


async def test_of_an_operation_that_cannot_be_read_the_dead_letter_has_the_input() -> None:
    given = {"operation": {"key": "k-1", "fingerprint": "f1"}}
    with task_hub_stage(instead={OPERATION: failing_outright}) as hub:
        await failed(hub, "op-odd", given)
        assert existing(await find_status(hub.binding, "op-odd"))["status"] == "dead_lettered"
        await swept(hub, "op-odd")
        letter = await the_letter()
        assert (letter.key, letter.reason, letter.message) == (
            "op-odd",
            "ValidationFailed",
            '{"operation": {"key": "k-1", "fingerprint": "f1"}}',
        )


async def test_orchestrations_of_the_app_around_the_engine_are_left_to_it() -> None:
    with task_hub_stage(instead={"theirs": failing_outright}) as hub:
        client = await hub.binding.client()
        await client.schedule_new_orchestration("theirs", instance_id="outbox-1")
        assert await hub.binding.wait_for_end("outbox-1", 20) is not None
        assert await purged(hub, datetime.now(UTC) + timedelta(days=1)) == 0
        assert await hub.binding.read_instance("outbox-1") is not None


async def test_other_failed_orchestrations_are_purged_when_they_are_old() -> None:
    with task_hub_stage(instead={OPERATION: failing_outright}) as hub:
        await failed(hub, "outbox-op-1", {})
        assert await purged(hub, datetime.now(UTC) - timedelta(days=1)) == 0
        assert await purged(hub, datetime.now(UTC) + timedelta(days=1)) == 1


async def terminated(hub: TaskHubStage, instance_id: str, reason: str) -> None:
    await (await hub.binding.client()).terminate_orchestration(instance_id, output=reason)
    instance = existing(await hub.binding.wait_for_end(instance_id, 20))
    assert instance.runtime_status is OrchestrationStatus.TERMINATED


async def until_shown(hub: TaskHubStage, instance_id: str) -> None:
    async def is_shown() -> bool:
        instance = await hub.binding.read_instance(instance_id)
        return instance is not None and instance.custom_status is not None

    await until(is_shown)


@pytest.mark.shows("P27")
async def test_an_operation_that_somebody_terminates_becomes_a_dead_letter_with_the_reason() -> None:
    """What its attempt did is not known; and its record must not refuse the key for ever."""
    with task_hub_stage() as hub:
        hub.answer = failing(3)
        await submit(hub.binding, an_operation(created_at=datetime.now(UTC), deadline_at=None))
        await until_shown(hub, "op-test")
        await terminated(hub, "op-test", "no longer needed")
        shown = document_of(existing(await hub.binding.read_instance("op-test")))
        await swept(hub, "op-test")
        letter = await the_letter()
        document = existing(await find_status(hub.binding, "op-test"))
        assert (letter.reason, letter.category) == ("AmbiguousOutcome", "ambiguous")
        assert letter.detail == "the orchestration was terminated: no longer needed"
        assert document["dead_letter"] == shown["dead_letter"] | {"id": letter.id}
        assert document["status"] == shown["status"] == "dead_lettered"


async def status_of(hub: TaskHubStage, operation_id: str) -> str:
    instance = await hub.binding.read_instance(operation_id)
    document = await find_status(hub.binding, operation_id) if instance is None else document_of(instance)
    return str(existing(document)["status"])


@pytest.mark.shows("P23")
async def test_an_operation_that_failed_before_its_first_attempt_is_started_anew() -> None:
    fails = [True]

    def failing_once(ctx: task.OrchestrationContext, input_: Any) -> Generator[Any, Any, Any]:
        if fails:
            yield from failing_at_once(ctx, input_)
        return (yield from operation_orchestrator(ctx, input_))

    with task_hub_stage(instead={OPERATION: failing_once}) as hub:
        operation = an_operation(created_at=datetime.now(UTC), deadline_at=None)
        await failed(hub, "op-test", start_input(operation, "s"))
        assert await status_of(hub, "op-test") == "pending"
        assert not of_type(Replayed, await submit(hub.binding, operation)).finished
        fails.clear()
        assert await recover(hub.binding, NOW) == {Recovery.STARTED_ANEW: 1}
        await hub.binding.wait_for_end("op-test", 20)
        assert await status_of(hub, "op-test") == "succeeded"
        assert (await list_dead_letters(DeadLetterFilter(), limit=10, cursor=None)).records == []


async def test_an_operation_that_always_fails_before_its_first_attempt_ends_as_a_dead_letter() -> None:
    with task_hub_stage(instead={OPERATION: failing_at_once}) as hub:
        await failed(hub, "op-test", start_input(an_operation(), "s"))
        for _ in range(MOST_RESTARTS):
            assert await recover(hub.binding, NOW) == {Recovery.STARTED_ANEW: 1}
            await hub.binding.wait_for_end("op-test", 20)
        await swept(hub, "op-test")
        letter = await the_letter()
        assert "the orchestration failed 6 times: " in letter.detail
        assert "it cannot even begin" in letter.detail
        assert await status_of(hub, "op-test") == "dead_lettered"


@pytest.mark.parametrize("is_terminated", [False, True], ids=["failed", "terminated"])
async def test_who_waits_for_an_operation_learns_of_its_end(is_terminated: bool) -> None:  # noqa: FBT001
    def waiting(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
        return (yield ctx.wait_for_external_event(ENDED_EVENT))

    ends = never_ending if is_terminated else failing_outright
    with task_hub_stage(instead={OPERATION: ends, SAGA: waiting}) as hub:
        await hub.binding.start_instance(SAGA, "saga-1", {}, again=False)
        given = start_input(an_operation(reports_to="saga-1"), "s")
        await hub.binding.start_instance(OPERATION, "op-test", given, again=False)
        if is_terminated:
            await until_shown(hub, "op-test")
            await terminated(hub, "op-test", "t")
        await hub.binding.wait_for_end("op-test", 20)
        await recover(hub.binding, NOW)
        saga = existing(await hub.binding.wait_for_end("saga-1", 20))
        ended = Completion.from_json(existing(saga.output))
        assert (ended.operation_id, ended.status) == ("op-test", "dead_lettered")


@pytest.mark.parametrize(
    ("name", "instance_id"), [(SAGA, "saga-1"), (BATCH, "batch-1"), (BULK_ACTION, "bulk-1")]
)
@pytest.mark.shows("P25")
async def test_what_runs_several_operations_is_started_anew_where_its_history_began(
    name: str, instance_id: str
) -> None:
    with task_hub_stage(instead={name: failing_at_once}) as hub:
        await hub.binding.start_instance(name, instance_id, {"progress": {"at": 7}}, again=False)
        for number in range(MOST_RESTARTS):
            await hub.binding.wait_for_end(instance_id, 20)
            assert await recover(hub.binding, NOW) == {Recovery.STARTED_ANEW: 1}
            anew = existing(await hub.binding.read_instance(instance_id))
            assert (anew.input["progress"], anew.input["restarts"]) == ({"at": 7}, number + 1)
        await hub.binding.wait_for_end(instance_id, 20)
        assert await recover(hub.binding, NOW) == {Recovery.DEAD_LETTER: 1}
        assert await recover(hub.binding, NOW) == {Recovery.DEAD_LETTER: 1}
        assert await recover(hub.binding, NOW + timedelta(hours=1)) == {Recovery.NONE: 1}
        letter = await the_letter()
        assert (letter.source, letter.reason) == (name, "AmbiguousOutcome")
        assert "it cannot even begin" in letter.detail


async def test_an_operation_that_is_terminated_before_its_first_attempt_is_started_anew() -> None:
    with task_hub_stage(instead={OPERATION: waiting_to_begin}) as hub:
        await hub.binding.start_instance(OPERATION, "op-test", start_input(an_operation(), "s"), again=False)
        await terminated(hub, "op-test", "t")
        assert await status_of(hub, "op-test") == "pending"
        assert await recover(hub.binding, NOW) == {Recovery.STARTED_ANEW: 1}
        assert existing(await hub.binding.read_instance("op-test")).input["restarts"] == 1


@pytest.mark.parametrize(("name", "instance_id"), [(SAGA, "saga-1"), (BATCH, "batch-1")])
async def test_what_runs_several_operations_goes_on_after_somebody_terminated_it(
    name: str, instance_id: str
) -> None:
    with task_hub_stage(instead={name: never_ending}) as hub:
        await hub.binding.start_instance(name, instance_id, {"progress": {"at": 7}}, again=False)
        await terminated(hub, instance_id, "t")
        assert await recover(hub.binding, NOW) == {Recovery.STARTED_ANEW: 1}
        anew = existing(await hub.binding.read_instance(instance_id))
        assert (anew.input["progress"], anew.input["restarts"]) == ({"at": 7}, 1)


@pytest.mark.shows("P27")
async def test_a_bulk_action_that_somebody_terminates_stays_so_and_leaves_a_dead_letter() -> None:
    with task_hub_stage(instead={BULK_ACTION: never_ending}) as hub:
        await hub.binding.start_instance(BULK_ACTION, "bulk-1", {"action_id": "bulk-1"}, again=False)
        await terminated(hub, "bulk-1", "too fast")
        assert await recover(hub.binding, NOW) == {Recovery.DEAD_LETTER: 1}
        letter = await the_letter()
        assert (letter.source, letter.reason) == (BULK_ACTION, "AmbiguousOutcome")
        assert letter.detail == "the orchestration was terminated: too fast"


async def test_a_run_that_is_cut_off_is_continued_by_the_next_one() -> None:
    with task_hub_stage(instead={OPERATION: failing_at_once, SAGA: failing_at_once}) as hub:
        await hub.binding.start_instance(SAGA, "saga-1", {"saga": {}}, again=False)
        await failed(hub, "op-test", start_input(an_operation(), "s"))
        await hub.binding.wait_for_end("saga-1", 20)
        for instance_id in ("op-test", "saga-1"):
            assert await recover(hub.binding, NOW, seconds=0) == {Recovery.STARTED_ANEW: 1}
            assert existing(await hub.binding.read_instance(instance_id)).input["restarts"] == 1


@pytest.mark.shows("P15")
async def test_one_that_cannot_be_followed_up_keeps_no_other_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails, or hangs until the time of the run is over: the others are followed up, now or next."""
    with task_hub_stage(instead={OPERATION: failing_at_once, SAGA: failing_at_once}) as hub:
        await hub.binding.start_instance(SAGA, "saga-1", {"saga": {}}, again=False)
        await failed(hub, "op-test", start_input(an_operation(), "s"))
        await hub.binding.wait_for_end("saga-1", 20)
        refuse = AsyncMock(side_effect=HttpResponseError("too large"))
        monkeypatch.setattr(failures, "_recover_operation", refuse)
        with pytest.raises(HttpResponseError):
            await recover(hub.binding, NOW)
        assert existing(await hub.binding.read_instance("saga-1")).input["restarts"] == 1
        hang = AsyncMock(side_effect=asyncio.CancelledError)
        monkeypatch.setattr(failures, "_recover_operation", hang)
        await hub.binding.wait_for_end("saga-1", 20)
        with pytest.raises(asyncio.CancelledError):
            await recover(hub.binding, NOW)
        assert await recover(hub.binding, NOW) == {Recovery.STARTED_ANEW: 1}


def waiting_for_a_handler(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
    """Wait for ever, as an operation does whose handler the app does not have."""
    why = "attempt 1 failed on this side: handler ship-order is not registered here any more"
    wait = {"began_at": "2026-11-21T12:00:00Z", "delay_reasons": [why]}
    ctx.set_custom_status({"status": "waiting_retry", "updated_at": "2026-11-21T12:00:00Z", "waits": [wait]})
    return (yield ctx.wait_for_external_event("never"))


async def test_a_look_of_what_is_installed_beside_the_app_has_its_turn() -> None:
    with task_hub_stage(instead={OPERATION: waiting_for_a_handler}) as hub:
        await submit(hub.binding, an_operation())

        async def is_seen() -> bool:
            await recover(hub.binding, NOW)
            return lacking_since(hub.binding, NOW) == {
                "handler ship-order": datetime(2026, 11, 21, 12, tzinfo=UTC)
            }

        await until(is_seen)
