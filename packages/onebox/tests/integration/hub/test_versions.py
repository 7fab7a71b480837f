"""host.json's versioning and overridable states, which the in-memory backend does not have."""

from pathlib import Path

import pytest

from onebox.hub import HubSettings
from onebox.hub.model import InstanceExistsError, Start, Status
from onebox.hub.settings import VersionFailure, Versioning, VersionMatch
from tests.support.onebox.backends import SDK_NOTICE, running_hub, status_of
from tests.support.onebox.sample_app import make_app

pytestmark = SDK_NOTICE


def of_version(own: str, failure: VersionFailure) -> HubSettings:
    return HubSettings(versioning=Versioning(own, VersionMatch.CURRENT_OR_OLDER, failure))


def versioned(instance_id: str, version: str | None) -> Start:
    return Start(instance_id, "version_of", version=version)


async def test_a_newer_instance_waits_for_an_app_that_may_run_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_hub(tmp_path, make_app(), settings=of_version("1.0", VersionFailure.REJECT)) as hub:
        await hub.tasks.start(versioned("newer", "2.0"))
        await hub.tasks.start(versioned("own", None))
        assert (await hub.tasks.wait_finished("own")).output == '"1.0"'
        await hub.settled()
        assert status_of(hub, "newer") is Status.PENDING
        assert "'newer' has version '2.0' and waits" in caplog.text
    async with running_hub(tmp_path, make_app(), settings=of_version("2.0", VersionFailure.REJECT)) as hub:
        assert (await hub.tasks.wait_finished("newer")).output == '"2.0"'


async def test_a_newer_instance_fails_when_host_json_says_so(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app(), settings=of_version("1.0", VersionFailure.FAIL)) as hub:
        await hub.tasks.start(versioned("newer", "2.0"))
        state = await hub.tasks.wait_finished("newer")
        assert state.status is Status.FAILED
        assert state.failure is not None
        assert b"VersionMismatch" in state.failure


async def test_with_any_state_a_start_takes_the_id_of_one_that_runs(tmp_path: Path) -> None:
    settings = HubSettings(replaceable=frozenset(Status))
    async with running_hub(tmp_path, make_app(), settings=settings) as hub:
        await hub.tasks.start(Start("taken", "wait_for_go"))
        await hub.tasks.wait_started("taken")
        await hub.tasks.start(Start("taken", "no_steps", input="1"))
        assert (await hub.tasks.wait_finished("taken")).output == "1"


async def test_a_policy_of_the_start_wins_over_host_json(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app(), settings=HubSettings(replaceable=frozenset(Status))) as hub:
        await hub.tasks.start(Start("taken", "wait_for_go"))
        with pytest.raises(InstanceExistsError):
            await hub.tasks.start(Start("taken", "no_steps", replaceable=frozenset()))
