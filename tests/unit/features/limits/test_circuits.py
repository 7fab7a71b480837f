import json
from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest

from durable_retry.features.limits import worker
from durable_retry.features.limits.circuits import DOCUMENTS
from durable_retry.features.limits.rules.limiter import acquire
from durable_retry.features.limits.rules.settings import LimitSettings
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.retry.slots import Slot, SlotRequest
from tests.support.builders import NOON, after

THREE = LimitSettings(max_concurrency=3)
REQUEST = SlotRequest("op-1:1", 90, THREE.to_json(), NOON, NOON, is_signal=True)


def a_dependency(keys: str) -> Dependency:
    text = f'[dependencies.payments]\nbase_url = "https://payments.example.com"\n{keys}'
    return parse_config(text, {}).dependencies["payments"]


def hub_with(limiter: Limiter) -> Mock:
    return Mock(read_entity=AsyncMock(return_value=json.dumps(limiter.to_json())))


def test_a_list_shows_the_limits_and_not_their_use() -> None:
    shown = DOCUMENTS.in_list(a_dependency("limits = { max_concurrency = 3 }"))
    assert shown["limits"].to_json() == {
        "max_concurrency": 3,
        "rate_per_second": 0,
        "shared_concurrency": 0,
    }


@pytest.mark.parametrize(("keys", "lent", "reads"), [("limits = { max_concurrency = 3 }", 1, 1), ("", 0, 0)])
async def test_a_circuit_by_itself_shows_what_is_lent_and_without_limits_nothing_is_read(
    keys: str, lent: int, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_retry.runtime.clock.now", lambda: NOON)
    limiter, _ = acquire(Limiter(), REQUEST, NOON)
    hub = hub_with(limiter)
    shown = await DOCUMENTS.by_itself(hub, a_dependency(keys))
    assert shown["limits"].lent == lent
    assert hub.read_entity.await_count == reads


async def test_the_answer_to_a_signalled_request_is_read_from_the_state_of_the_limiter() -> None:
    limiter, _ = acquire(Limiter(), REQUEST, NOON)
    hub = hub_with(limiter)
    assert await worker.answer_to(hub, "payments", REQUEST, NOON) == Slot("op-1:1", NOON)
    later = replace(REQUEST, asked_at=after(1))
    assert await worker.answer_to(hub, "payments", later, after(1)) is None
