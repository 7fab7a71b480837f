"""What holds of ends, events, records, batches and sagas."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import FINISHED, DeadLetterReason, OperationState
from durable_retry.features.outbox.rules.outbox import (
    event_id_for,
    failure_events_of,
    failure_id_of,
    outbox_id_of,
)
from durable_retry.features.workflows.names import SAGA
from durable_retry.features.workflows.rules.shapes import Saga, SagaStep
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import OperationInput
from durable_retry_console.index.notes import is_listed
from tests.simulation.app import BALANCE, DEBIT, REFUSING, WRITES
from tests.simulation.people import RIVAL
from tests.simulation.story import RunEnd, Story
from tests.simulation.targets import REFUSING_QUEUE


def ends_once(story: Story) -> Iterator[str]:
    """Every accepted operation ends in exactly one end state, and runs once but for its replays."""
    runs = Counter((end.operation.run_id, end.operation.created_at) for end in story.ends)
    yield from (f"{run} ended {times} times" for run, times in runs.items() if times > 1)
    first_runs = Counter(
        (end.operation.operation_id, end.life) for end in story.ends if end.operation.replay_of is None
    )
    yield from (f"{name} was run {times} times" for name, times in first_runs.items() if times > 1)
    yield from (f"{name} never ended" for name in sorted(story.people.accepted - set(first_runs)))
    for end in story.ends:
        rival_won = story.people.rivals.get((end.operation.operation_id, end.life))
        if rival_won is not None and rival_won != ((end.operation.request or {}).get("path") == RIVAL):
            yield f"{end.operation.run_id} ran what was refused"
    keys = {end.operation.key for end in story.ends}
    for message in sorted(story.people.messages - story.people.malformed):
        if message.replace("m-", "key-") not in keys:
            yield f"the message {message} came to nothing"
    for end in story.ends:
        state, name = OperationState(end.document["status"]), end.operation.operation_id
        if state not in FINISHED:
            yield f"{name} ended {state}"
        is_replaced = end.document.get("replaced_by") is not None
        if state is OperationState.CANCELLED and name not in story.people.cancelled and not is_replaced:
            yield f"{name} was cancelled, and nobody asked for it"


def events_arrive(story: Story) -> Iterator[str]:
    """Every event that a document shows arrives under one id, or is a dead letter; no others."""
    arrived, given_up = _arrived(story), _given_up(story)
    ids = Counter(event["event_id"] for end in story.ends for event in end.document["events"])
    yield from (
        f"the event {event_id} is that of {times} runs" for event_id, times in ids.items() if times > 1
    )
    promised = {event["event_id"]: end for end in story.ends for event in end.document["events"]}
    for event_id, end in promised.items():
        if not (end.succeeded or end.document["dead_letter"]):
            yield f"{end.operation.run_id} was cancelled and has the event {event_id}"
        if event_id not in arrived | given_up:
            yield f"the event {event_id} never arrived"
    of_successes = {event_id for event_id in arrived if not _is_of_failure(event_id)}
    yield from (f"{event_id} arrived and nobody sent it" for event_id in sorted(of_successes - set(promised)))


def _arrived(story: Story) -> set[str]:
    arrived = {message["id"] for messages in story.app.queues.messages.values() for message in messages}
    return arrived | set(story.app.targets["hooks"].effects)


def _given_up(story: Story) -> set[str]:
    undeliverable = DeadLetterReason.OUTBOX_UNDELIVERABLE
    return {letter.key for letter in story.letters if letter.reason is undeliverable}


def _is_of_failure(event_id: str) -> bool:
    return (outbox_id_of(event_id) or "").endswith(failure_id_of(""))


def failures_are_told(story: Story) -> Iterator[str]:
    """Every dead letter of an operation is told by the events that this asked for, and by no others."""
    arrived, given_up, told = _arrived(story), _given_up(story), dict[str, str]()
    for letter in story.letters:
        if letter.reason is DeadLetterReason.OUTBOX_UNDELIVERABLE or letter.operation is None:
            continue
        run_id = OperationInput.from_json(letter.operation).run_id
        for number, _ in enumerate(failure_events_of(letter.operation), start=1):
            event_id = event_id_for(failure_id_of(run_id), number)
            told[event_id] = letter.id
            if event_id not in arrived | given_up:
                yield f"nobody was told of the dead letter {letter.id} by {event_id}"
    for event_id in sorted(filter(_is_of_failure, arrived - told.keys())):
        yield f"{event_id} tells of a dead letter that there is not"
    for message in (message for messages in story.app.queues.messages.values() for message in messages):
        if (letter_id := told.get(message["id"])) and message["data"]["dead_letter"]["id"] != letter_id:
            yield f"{message['id']} does not tell of {letter_id}"


def events_are_complete(story: Story) -> Iterator[str]:
    """A success has as many events as were asked for, and a handler's table writes are those of successes."""
    rows = [row for row in story.app.tables.rows(WRITES) if "life" in row]
    written = Counter(row["RowKey"] for row in rows)
    lives = {row["RowKey"]: row["life"] for row in rows}
    last = {end.operation.key: end.life for end in story.ends if end.succeeded and end.operation.handler}
    for end in story.ends:
        handled = end.operation.handler is not None
        asked = (end.operation.parts or {}).get("outbox", {})
        wanted = len(asked.get("on_success", ())) + handled
        if not end.succeeded:
            wanted = len(asked.get("on_failure", ())) if end.document["dead_letter"] else 0
        if len(end.document["events"]) != wanted:
            yield f"{end.operation.run_id} has {len(end.document['events'])} events of {wanted}"
        if handled and end.succeeded and written[end.operation.key] != 1:
            yield f"{end.operation.run_id} wrote {written[end.operation.key]} rows"
    for key, life in last.items():
        if lives.get(key) != life:
            yield f"the row of {key} is of life {lives.get(key)}, its last success of life {life}"
    succeeded = {end.operation.key for end in story.ends if end.succeeded}
    yield from (f"{key} wrote and did not succeed" for key in sorted(set(written) - succeeded))


def swaps_commit_once(story: Story) -> Iterator[str]:
    """A compare-and-swap commits once, from the state that it names: no two successes begin with the same."""
    (row,) = (row for row in story.app.tables.rows(WRITES) if row["RowKey"] == BALANCE)
    ends = [end for end in story.ends if end.succeeded and end.operation.handler == DEBIT]
    found = sorted(end.document["result"]["value"] for end in ends)
    if found != list(range(row["number"])):
        yield f"the row was counted to {row['number']} by those who found {found}"


def refusals_are_final(story: Story) -> Iterator[str]:
    """What storage refuses for good ends where a person reads why, and is not taken for a success."""
    letters = {letter.id: letter for letter in story.letters}
    for end in story.ends:
        summary, table = end.document["dead_letter"], (end.operation.input or {}).get("table")
        if table in REFUSING and end.succeeded:
            yield f"{end.operation.run_id} succeeded, and {table} refused its row"
        elif table in REFUSING and summary and summary["reason"] == DeadLetterReason.REJECTED_BY_HANDLER:
            kept = letters.get(summary["id"])
            if kept is not None and kept.attempts[-1].get("status_code") is not None:
                continue  # Its dependency refused it first: a conflict with a request of a host that died.
            if kept is None or REFUSING[table][1] not in kept.detail:
                yield f"the dead letter {summary['id']} does not say what {table} answered"
    given_up = {letter.key: letter for letter in story.letters}
    for event in _events(story, REFUSING_QUEUE):
        kept = given_up.get(event["event_id"])
        if kept is None or REFUSING_QUEUE not in kept.detail:
            yield f"no dead letter says why the event {event['event_id']} was refused"


def answers_are_true(story: Story) -> Iterator[str]:
    """Who is answered with the end of an operation is answered with one that it has."""
    ends = {(end.operation.operation_id, end.document["status"]) for end in story.ends}
    for document in story.people.answered:
        if (document["operation_id"], document["status"]) not in ends:
            yield f"{document['operation_id']} was said to be {document['status']}"


def _events(story: Story, type_: str) -> Iterator[dict[str, Any]]:
    for end in story.ends:
        yield from (event for event in end.document["events"] if event["type"] == type_)


def records_agree(story: Story) -> Iterator[str]:
    """The record of a key answers what the last run of its operation ended with."""
    for end in story.last_ends:
        record = story.records.get((end.operation.operation_id, end.life))
        if record is None or not _is_recorded(end, record["document"]):
            state = None if record is None else (record["document"] or {"status": "none"})["status"]
            yield f"{end.operation.operation_id} ended {end.document['status']}, its record says {state}"
        elif record["run"] != end.operation.run:
            yield f"{end.operation.run_id} ended, and its record has run {record['run']}"


def _is_recorded(end: RunEnd, document: Any) -> bool:
    """Whether a record shows an end; the turn that is made again records it once more, a little later."""
    if not end.is_repeated or document is None:
        return bool(document == end.document)
    return _without_instants(document) == _without_instants(end.document)


def _without_instants(document: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out when the last turn was made, when it took note of what people did, and the times of waits.

    And by how much the turn that decided a wait was late, which its reasons say.
    """
    actions = [action | {"at": ""} for action in document.get("actions", ())]
    waits = [_without_lateness(wait) | {"began_at": "", "until": ""} for wait in document.get("waits", ())]
    attempts = [_without_lateness(attempt) for attempt in document.get("attempts", ())]
    return {**document, "updated_at": "", "actions": actions, "waits": waits, "attempts": attempts}


def _without_lateness(part: Mapping[str, Any]) -> dict[str, Any]:
    reasons = [reason for reason in part["delay_reasons"] or () if "nothing here worked" not in reason]
    return {**part, "delay_reasons": reasons}


def records_expire(story: Story) -> Iterator[str]:
    """No record of a key outlives its time."""
    yield from (f"the record of {name} is still there" for name in story.outliving)


def batches_are_whole(story: Story) -> Iterator[str]:
    """Every item of a batch has ended as its operation first did, and never did too many run at once.

    When the event of an end comes so late that a replay has ended before, the item has that end.
    """
    first = story.first_ends
    for document in story.batches:
        if document["finished_at"] is None or len(document["items"]) != document_size(story, document):
            yield f"{document['batch_id']} is {document['status']} with {len(document['items'])} items"
        for item in document["items"] if document["finished_at"] is not None else ():
            end = first.get(item["operation_id"] or "")
            ended = "dead_lettered" if end is None else end.document["status"]
            if item["status"] != ended and item["status"] not in _replayed_before(story, document, item):
                yield f"{document['batch_id']}/{item['index']} is {item['status']}, not {ended}"
        running = [end for end in first.values() if end.operation.reports_to == document["batch_id"]]
        if _most_at_once(running) > document["max_concurrency"]:
            yield f"{document['batch_id']} ran {_most_at_once(running)} at once"


def _replayed_before(story: Story, document: dict[str, Any], item: dict[str, Any]) -> Iterator[str]:
    """Give how replays of an item's operation ended before its batch did."""
    finished_at = from_rfc3339(document["finished_at"]) + story.world.clock_difference
    for end in story.ends:
        is_replay = end.operation.replay_of is not None
        if is_replay and end.operation.operation_id == item["operation_id"] and end.ended_at <= finished_at:
            yield end.document["status"]


def document_size(story: Story, document: dict[str, object]) -> int:
    """Return how many items a batch was submitted with."""
    return story.people.batches[str(document["batch_id"])]


def sagas_are_undone(story: Story) -> Iterator[str]:
    """A saga goes on after success only, and undoes what it did in reverse when a step ends otherwise.

    It may hear of a step's end late, when somebody has replayed that step's dead letter: the replay's end
    is then what it goes by.
    """
    for saga_id in sorted(story.people.sagas):
        instance = story.app.hub.instances.get(saga_id)
        if instance is None or instance.name != SAGA or instance.is_running:
            yield f"{saga_id} has not ended"
            continue
        saga = saga_of(story, saga_id)
        if saga.restarts:
            continue
        steps = saga.steps
        wrong = list(_saga_contradictions(story, saga_id, steps, story.first_ends))
        if wrong and (replayed := _ends_of_replays(story, steps)):
            wrong = list(_saga_contradictions(story, saga_id, steps, story.first_ends | replayed))
        yield from wrong


def restarts_are_true(story: Story) -> Iterator[str]:
    """What a restarted saga says of a step is what its dependency did last, and no step stands twice.

    Steps whose dead letter was replayed are left out: that may have come after the saga.
    """
    for saga_id in sorted(story.people.sagas):
        instance = story.app.hub.instances.get(saga_id)
        if instance is None or instance.name != SAGA or instance.output is None:
            continue
        document = json.loads(instance.output)
        if not document.get("restarts"):
            continue
        for step in document["steps"]:
            effects = _effects_of_step(story, (story.people.sagas[saga_id], step["index"]))
            if effects is None:
                continue
            last = effects[-1] if effects else "undo"
            said = {"stands": "do", "undone": "undo", "none": "undo"}.get(step["effect"], last)
            if said != last or ("do", "do") in pairwise(effects):
                yield f"{saga_id} says {step['effect']} of {step['name']} after {effects}"


def _effects_of_step(story: Story, place: tuple[int, int]) -> list[str] | None:
    """Return what took effect of a step of a saga, `do` or `undo`, in order; None when it was replayed."""
    calls = [call for call in story.app.targets["payments"].calls if saga_and_step(call.operation) == place]
    if any(call.operation.replay_of for call in calls):
        return None
    first = {call.key: call for call in reversed(calls) if call.effect}
    ordered = sorted(first.values(), key=lambda call: call.at)
    return ["undo" if call.path.endswith("/undo") else "do" for call in ordered]


def saga_of(story: Story, saga_id: str) -> Saga:
    """Return a saga as its last run began."""
    return Saga.from_json(json.loads(story.app.hub.instances[saga_id].input)["saga"])


def saga_and_step(operation: OperationInput) -> tuple[int, int]:
    """Return the number of an operation's saga, and of its step; -1 of one that is of none."""
    given = (operation.request or {}).get("json")
    return (given["saga"], given["step"]) if isinstance(given, dict) and "saga" in given else (-1, -1)


def references_are_filled_in(story: Story) -> Iterator[str]:
    """What a step of a saga refers to is what the step before was answered, however long its answer was."""
    calls = [call for target in story.app.targets.values() for call in target.calls]
    answered: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for call in calls:
        if not call.path.endswith("/undo"):
            answered[saga_and_step(call.operation)].append(call.seen)
    for call in calls:
        given = (call.operation.request or {}).get("json") or {}
        if isinstance(given, dict) and "before" in given:
            before = (given["saga"], given["step"] - 1)
            if given["before"] is None or given["before"] not in answered[before]:
                yield f"{call.operation.key} was sent {given['before']!r} of {before}"


def _ends_of_replays(story: Story, steps: Sequence[SagaStep]) -> dict[str, RunEnd]:
    operations = {step.operation.operation_id for step in steps}
    replays = (end for end in story.ends if end.operation.replay_of is not None)
    return {end.operation.operation_id: end for end in replays if end.operation.operation_id in operations}


def _saga_contradictions(
    story: Story, saga_id: str, steps: Sequence[SagaStep], ends: dict[str, RunEnd]
) -> Iterator[str]:
    done = [ends.get(step.operation.operation_id) for step in steps]
    good = [end for end in done if end is not None and end.succeeded]
    started = [end for end in done if end is not None]
    if len(started) != min(len(good) + 1, len(steps)) or started[: len(good)] != good:
        yield f"{saga_id} started {len(started)} steps, {len(good)} succeeded"
    failed = started[-1] if len(good) < len(started) else None
    ending = None if failed is None else Completion.of(failed.document)
    acted = len(good) + (ending is not None and ending.may_have_acted)
    at_least = max(acted, len(good) + _took_effect(story, failed))
    if len(good) == len(steps):
        if any(_undone(ends, steps)):
            yield f"{saga_id} succeeded and undid something"
    elif not any(_are_undone(ends, steps[:number]) for number in range(at_least, acted + 1)):
        yield f"{saga_id} did not undo {acted} steps in reverse"


def _took_effect(story: Story, failed: RunEnd | None) -> bool:
    """Whether any attempt of an operation did something until it failed."""
    if failed is None:
        return False
    name, until = failed.operation.operation_id, failed.ended_at
    calls = (call for call in story.app.targets["payments"].calls if call.at <= until)
    return any(call.effect for call in calls if call.operation.operation_id == name)


def _undone(first: dict[str, RunEnd], steps: Sequence[SagaStep]) -> list[RunEnd | None]:
    return [first.get(step.compensation.operation_id) for step in steps if step.compensation]


def _are_undone(first: dict[str, RunEnd], steps: Sequence[SagaStep]) -> bool:
    starts = [None if end is None else end.started_at for end in _undone(first, steps)]
    known = [start for start in starts if start is not None]
    return len(known) == len(starts) and known == sorted(known, reverse=True)


def index_has_all(story: Story) -> Iterator[str]:
    """Once upkeep ran, the index has each operation that ended."""
    life = len(story.world.lives)
    for end in story.last_ends:
        name = end.operation.operation_id
        entry = story.noted.get(name)
        if end.life != life or (entry is not None and story.world.life_at(entry.created_at) == life):
            continue
        yield f"{name} is in no list"


def index_needs_no_mending(story: Story) -> Iterator[str]:
    """Where no worker died, the index has each operation before upkeep adds what it lacks."""
    if not story.world.deaths:
        yield from (f"nobody noted {name}" for name in sorted(story.upkeep.unnoted))


def ends_are_listed(story: Story) -> Iterator[str]:
    """Once upkeep ran, what ended otherwise than well is in the list of what failed, in its state."""
    life = len(story.world.lives)
    for end in story.last_ends:
        noted = story.listed.get(end.operation.operation_id)
        if end.life == life and not is_listed(OperationState(end.document["status"]), noted):
            name = end.operation.operation_id
            yield f"{name} is {end.document['status']}, and listed as {noted}"


def results_are_there(story: Story) -> Iterator[str]:
    """A result that is stored apart is there as long as the record that names it, and not much longer."""
    yield from (f"the result of {name} is gone" for name in story.lost_results)
    yield from (f"{name} is left" for name in story.left_results)


def alerts_are_true(story: Story) -> Iterator[str]:
    """An alert is raised when it is so, and cleared when it is not so any more."""
    yield from story.alerts.untrue


def nothing_is_left(story: Story) -> Iterator[str]:
    """In the end nothing runs, nothing is under way, and nothing is noted as still to be done."""
    hub = story.app.hub
    yield from (f"{each.instance_id} still runs" for each in hub.instances.values() if each.is_running)
    if hub.under_way:
        yield f"{hub.under_way} messages are under way"
    index = story.app.tables.rows("CommitIndex")
    notes = [row for row in index if row["PartitionKey"].startswith("pending")]
    # The note of a commit that was not made stays for an hour.
    not_made = {end.operation.run_id for end in story.ends if not end.succeeded}
    kept = (row for row in notes if row["RowKey"] not in not_made)
    yield from (f"{row['RowKey']} still has events to send" for row in kept)
    intents = [row for row in story.app.tables.rows("DeadLetterIndex") if row["PartitionKey"] == "intent"]
    yield from (f"a change of a dead letter was not finished: {row['RowKey']}" for row in intents)


def nothing_unexpected(story: Story) -> Iterator[str]:
    """No orchestration failed, no repeated turn differed, nothing was raised where nothing catches it."""
    yield from story.world.mistakes


def _most_at_once(ends: list[RunEnd]) -> int:
    changes = sorted([(end.ended_at, -1) for end in ends] + [(end.started_at, 1) for end in ends])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most
