"""Kill -9 in the middle of outboxes, batches, sagas, replays and dead letters, with every message doubled.

Behind every write that one of them makes stands one subject when the process dies. In further lives it dies
at every named point of the task hub. In the end, whatever happened:

1. every operation is in exactly one end state, and the record of its key says the same;
2. every event is where it belongs, and those that were sent have arrived, each under its one id;
3. no dead letter is missing or doubled, the counts are right, and nothing is left to be done.
"""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from durable_retry.attempt import results
from durable_retry.dead_letters.records import left_over
from durable_retry.features.dead_letter_lists.counts import read_summary
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.outbox.index_store import list_notes
from durable_retry.features.workflows.batch_store import document_of_batch, find_batch
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.dead_letters.record import Status
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.storage.tables import rows_after, tables_between
from onebox.hub import FaultPoint
from scripts.processes import running
from tests.fault.app.crash.flow import QUEUE, Expected, events_of_operation, operation_id, without_run
from tests.fault.app.crash.flows import FLOWS, dependencies, flow_of
from tests.fault.app.crash.lives import Life, exit_code_of
from tests.fault.app.crash.places import CLIENT
from tests.support.azurite import Storage, new_account, use_account
from tests.support.target import Target

WRITE_NOTHING = {
    "bulk_page",
    "wake_waiting",
    "keep_frozen",
    "count_frozen",
    "wake_frozen",
    "look_at_call",
    "look_at_lane",
    "look_up",
    "poll",
    "diagnose",
    "pass_queue",
    "BuiltIn__HttpActivity",
}
"""Activities that only read, ask a dependency, wake or tell circuits; that of a diagnosis, which removes the
row that it writes; and the SDK's own, which nobody calls."""

CUT_ELSEWHERE = {"start_call", "remove_past", "begin_restart", "end_restart"}
"""An app's own orchestrators call the first: see test_call_cuts.py. The second: see test_upkeep.py. Those
of restarted sagas: see test_saga_restarts.py."""

NOT_CUT_YET = {"leave_dependency"}
"""It closes a stay, and finds it closed when it runs again. In simulated worlds workers die in it."""

STRUCK = ("saga", "batch", "refused")
"""What is begun in turn in lives that are killed at a point of the task hub, and an outbox in each."""


@dataclass(frozen=True)
class Aftermath:
    """What is there when every life is over.

    Attributes:
        storage: The app's storage account.
        cuts: Behind which write each subject stood; None for those of the later lives.
        report: What the last life found in the task hub.
    """

    storage: Storage
    cuts: dict[str, Any]
    report: dict[str, Any]

    @property
    def expected(self) -> Expected:
        expected = Expected()
        for subject in (*self.cuts, *(f"{flow.name}-0" for flow in FLOWS)):
            expected.add(flow_of(subject).expected(subject))
        return expected


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    folder = tmp_path_factory.mktemp("lives")
    storage, target = new_account(), Target(folder)
    with running(target.server):
        lived(a_life(folder, storage, target))
        cuts = json.loads((folder / "left.json").read_text())["cuts"]
        yield Aftermath(storage, cuts, json.loads((folder / "report.json").read_text()))


def a_life(folder: Path, storage: Storage, target: Target) -> Life:
    file = folder / "dependencies.toml"
    file.write_text(dependencies())
    settings = {"AzureWebJobsStorage": storage.connection_string, "DEPENDENCIES_FILE": str(file)}
    # A client that stands behind its write has a submission under way for ever.
    return Life(folder, settings | {"FLAKY_TARGET_URL": target.url, "HTTP_CONCURRENCY": "0"})


def lived(life: Life) -> None:
    assert exit_code_of(life.be_cut) == -signal.SIGKILL
    for number, point in enumerate(FaultPoint):
        subjects = [f"{name}-{100 + number}" for name in ("outbox", STRUCK[number % len(STRUCK)])]
        visit = 1 if point is FaultPoint.TIMER_DUE else 2  # Several timers that are due are one visit.
        code = exit_code_of(life.be_struck, point, visit, subjects)
        assert code == -signal.SIGKILL, f"{point} was never visited"
    assert exit_code_of(life.end) == 0


@pytest.fixture
def _storage(aftermath: Aftermath, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_account(monkeypatch, aftermath.storage.connection_string)
    with using(parse_config(dependencies(), {"FLAKY_TARGET_URL": "http://127.0.0.1:9"})):
        yield


pytestmark = [pytest.mark.usefixtures("_storage"), pytest.mark.timeout(400), pytest.mark.long]


def test_every_activity_that_writes_was_killed_behind_a_write(aftermath: Aftermath) -> None:
    killed = {place[0].partition(":")[0] for place in aftermath.cuts.values() if place is not None}
    writing = {*aftermath.report["activities"], CLIENT} - WRITE_NOTHING - CUT_ELSEWHERE
    assert killed == writing - NOT_CUT_YET


@pytest.mark.shows("A6")
def test_every_operation_is_in_one_end_state(aftermath: Aftermath) -> None:
    assert aftermath.report["instances"] == aftermath.expected.operations
    assert aftermath.report["records"] == aftermath.expected.operations


async def test_every_large_result_is_stored_apart(aftermath: Aftermath) -> None:
    days = await tables_between(f"{results.TABLE_PREFIX}0", f"{results.TABLE_PREFIX}:")
    rows = [row for day in days for row in await rows_after(day, "0", limit=1_000)]
    large = {subject for subject in aftermath.cuts if flow_of(subject).name == "large"} | {"large-0"}
    assert {row["RowKey"].partition(".")[0] for row in rows} == set(map(operation_id, large))


def test_every_saga_says_what_stands_and_what_was_undone(aftermath: Aftermath) -> None:
    ends = Counter((*saga["stands"], "|", *saga["undone"]) for saga in aftermath.report["sagas"])
    sagas = [subject for subject in aftermath.cuts if flow_of(subject).name == "saga"]
    assert ends == {("a", "|", "b"): len(sagas) + 1}


async def test_every_batch_says_how_each_item_has_ended(aftermath: Aftermath) -> None:
    for batch_id, ends in aftermath.expected.batches.items():
        batch = await find_batch(batch_id)
        assert batch is not None
        assert batch.finished_at is not None
        assert [item.status for item in (await document_of_batch(batch)).items] == ends


async def test_every_event_is_where_it_belongs(aftermath: Aftermath) -> None:
    wanted = aftermath.expected.events
    found = [await events_of_operation(each) for each in sorted({each.partition(".")[0] for each in wanted})]
    assert {without_run(event.event_id): event.state.value for events in found for event in events} == wanted
    notes, _ = await list_notes(200, None)
    assert notes == [], "nothing is left to be sent"


def test_what_was_sent_has_arrived_under_its_id(aftermath: Aftermath) -> None:
    arrived = set(map(without_run, ids_in(aftermath.storage)))
    assert arrived == aftermath.expected.queued


async def test_no_dead_letter_is_missing_or_doubled(aftermath: Aftermath) -> None:
    page = await list_dead_letters(DeadLetterFilter(), limit=200, cursor=None)
    records = list(page.records)
    while page.cursor is not None:
        page = await list_dead_letters(DeadLetterFilter(), limit=200, cursor=page.cursor)
        records += page.records
    assert max(Counter(record.id for record in records).values()) == 1
    found = Counter((without_run(record.key), record.reason.value, record.status.value) for record in records)
    wanted = aftermath.expected.letters.items()
    assert found == Counter({(*failed, status): 1 for failed, status in wanted})
    summary = await read_summary(clock.now())
    still_open = Counter(record.reason.value for record in records if record.status is Status.OPEN)
    assert {reason: waiting.open for reason, waiting in summary.by_reason.items()} == still_open
    assert (await left_over(10))[0] == [], "no change is half done"


def ids_in(storage: Storage) -> Iterator[str]:
    with storage.queue(QUEUE) as queue:
        for message in queue.receive_messages(messages_per_page=32, visibility_timeout=600):
            yield json.loads(message.content)["id"]
