"""Who waits for whom in a group commit: head starts, rides, followers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from onebox.faults import FaultPoint
from onebox.hub.database import Transaction
from onebox.hub.group import Basis, NoFollowers
from onebox.hub.model import FencedError, Kind, Lane
from tests.support.onebox.writer import ENTITY, Setting, post, post_and_fail


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[Setting]:
    """A writer that gives clients a head start which no test waits for."""
    made = Setting(tmp_path / "hub.db", head_start_seconds=60)
    yield made
    await made.close()


def woken(setting: Setting) -> list[str]:
    return [target for effects in setting.applied for target, _ in effects.wake]


async def test_what_a_client_wakes_waits_for_its_head_start(patient: Setting) -> None:
    await patient.writer.commit(post)
    await patient.writer.commit_surely(lambda tx: tx.post("@counter@b", Kind.OPERATION, b""))
    assert patient.stored() == 2
    assert woken(patient) == ["@counter@b"], "a worker's transaction waits for nothing"
    assert not patient.writer.is_idle


async def test_what_is_held_back_when_the_writer_closes_is_left_to_the_next_start(patient: Setting) -> None:
    await patient.writer.commit(post)
    await patient.writer.close()
    assert patient.writer.is_idle
    assert woken(patient) == []
    assert patient.stored() == 1


async def test_after_its_head_start_it_is_woken(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "hub.db", head_start_seconds=0.001)
    await setting.writer.commit(post)
    async with asyncio.timeout(60):
        while not setting.writer.is_idle:  # noqa: ASYNC110 - it says nothing when it is
            await asyncio.sleep(0.001)
    assert woken(setting) == [ENTITY]
    await setting.close()


@pytest.fixture
async def riding(tmp_path: Path) -> AsyncIterator[Setting]:
    """A writer whose workers' transactions wait for a client's, longer than any test."""
    made = Setting(tmp_path / "hub.db", head_start_seconds=60, ride_seconds=60)
    yield made
    await made.writer.commit(post)  # ends a group that still waits
    await made.close()


async def filled(setting: Setting, workers: int) -> list[asyncio.Task[None]]:
    """Let workers commit, until all of it has run."""
    runs = asyncio.Semaphore(0)

    def post_and_count(tx: Transaction) -> None:
        post(tx)
        runs.release()

    commits = [asyncio.create_task(setting.writer.commit_surely(post_and_count)) for _ in range(workers)]
    for _ in range(workers):
        await runs.acquire()
    return commits


async def test_workers_transactions_share_the_commit_of_the_next_client(riding: Setting) -> None:
    commits = await filled(riding, 2) + await filled(riding, 1)
    assert riding.stored() == 0
    assert not any(each.done() for each in commits), "nothing is answered before it is durable"
    await riding.writer.commit(post)
    await asyncio.gather(*commits)
    assert (riding.stored(), riding.groups) == (4, 1)


async def test_they_wait_no_longer_than_they_may(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "hub.db", ride_seconds=0.001)
    async with asyncio.timeout(60):
        await asyncio.gather(*await filled(setting, 1))
    assert (setting.stored(), setting.groups) == (1, 1)
    await setting.close()


async def test_a_failure_in_a_group_that_waits_spoils_only_itself(riding: Setting) -> None:
    (first,) = await filled(riding, 1)
    with pytest.raises(LookupError):
        await riding.writer.commit(post_and_fail)
    await first
    assert (riding.stored(), riding.groups) == (1, 1)


class Followed(NoFollowers):
    """Lets every target follow, and says when it did."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def follow(  # type: ignore[override] # it follows
        self, target: str, _lane: Lane, _basis: Basis
    ) -> Callable[[Transaction], None]:
        return lambda _: self._said.append(target)


class GoingOn(NoFollowers):
    """Has work go on from each target that is woken."""

    def __init__(self) -> None:
        self.bases: list[Basis] = []

    def follow(  # type: ignore[override] # it follows
        self, _target: str, _lane: Lane, basis: Basis
    ) -> Callable[[Transaction], None]:
        basis.expected += 1
        self.bases.append(basis)
        return lambda _: None


@pytest.fixture
async def going_on(tmp_path: Path) -> AsyncIterator[tuple[Setting, GoingOn]]:
    """A writer that waits for no client, and as long as a test for what goes on from a group."""
    followers = GoingOn()
    made = Setting(tmp_path / "hub.db", ride_seconds=60, followers=followers)
    made.writer._ride._share = 0
    yield made, followers
    await made.close()


async def begun(setting: Setting, followers: GoingOn) -> asyncio.Task[None]:
    """Return a commit whose group stays open for what goes on from it."""
    first = asyncio.create_task(setting.writer.commit_surely(post))
    while not followers.bases:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    return first


async def test_a_group_waits_for_what_goes_on_from_it(going_on: tuple[Setting, GoingOn]) -> None:
    setting, followers = going_on
    first = await begun(setting, followers)
    assert setting.groups == 0
    await setting.writer.commit_surely(lambda _: None, followers.bases[0])
    await first
    assert (setting.stored(), setting.groups) == (1, 1)


async def test_a_client_does_not_wait_for_what_goes_on_from_a_group(
    going_on: tuple[Setting, GoingOn],
) -> None:
    setting, followers = going_on
    first = await begun(setting, followers)
    await setting.writer.commit(lambda _: None)
    await first
    await setting.writer.commit_surely(lambda tx: tx.db.execute("DELETE FROM messages"), followers.bases[0])
    assert (setting.stored(), setting.groups) == (0, 2)


async def test_what_goes_on_from_a_group_that_runs_again_writes_nothing(
    going_on: tuple[Setting, GoingOn],
) -> None:
    setting, followers = going_on
    first = await begun(setting, followers)
    spoiler = asyncio.create_task(setting.writer.commit_surely(post_and_fail))
    while len(followers.bases) == 1:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    stale, fresh = (setting.writer.commit_surely(post, basis) for basis in followers.bases)
    ends = await asyncio.gather(first, spoiler, stale, fresh, return_exceptions=True)
    assert list(map(type, ends)) == [type(None), LookupError, FencedError, type(None)]
    assert (setting.stored(), setting.groups) == (2, 1)


async def test_what_goes_on_from_a_group_that_is_not_committed_writes_nothing(
    going_on: tuple[Setting, GoingOn],
) -> None:
    setting, followers = going_on
    first = await begun(setting, followers)
    setting.raise_at = FaultPoint.GROUP_FILLED
    with pytest.raises(RuntimeError):
        await setting.writer.commit(lambda _: None)
    with pytest.raises(RuntimeError):
        await first
    with pytest.raises(FencedError):
        await setting.writer.commit_surely(post, followers.bases[0])
    assert setting.stored() == 0


async def test_a_client_has_its_answer_before_what_a_worker_wakes_follows(tmp_path: Path) -> None:
    said: list[str] = []
    setting = Setting(tmp_path / "hub.db", ride_seconds=60, followers=Followed(said))

    async def post_as_client() -> None:
        await setting.writer.commit(lambda _: None)
        said.append("answered")

    worker = setting.writer.commit_surely(post)
    await asyncio.gather(worker, post_as_client())
    late = asyncio.create_task(setting.writer.commit_surely(lambda _: None))
    while ENTITY not in said:  # noqa: ASYNC110 - the group that it follows in waits for a client
        await asyncio.sleep(0)
    assert said == ["answered", ENTITY]
    await setting.writer.commit(lambda _: None)
    await late
    await setting.close()
