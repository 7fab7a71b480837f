from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from durable_retry.circuit.cache import circuit_of, close_circuits
from durable_retry.features.key_circuits.circuit import KeyCircuit
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.calls import CallEnd, CallHealth
from durable_retry.rules.circuit.reporters import ReportBuffer
from durable_retry.rules.circuit.snapshot import Permitted, Refused
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.loop import Blocked, NeedsProbe
from durable_retry.runtime import clock
from tests.support.narrowing import of_type
from tests.support.shared_circuit import CircuitInMemory, Copies, Moment

FRAGILE = CircuitSettings(minimum_calls=3, by="limit_key")
FIRST = AdmissionState()
HUB = TaskHub("{}")


@dataclass
class Keys:
    """The circuits of a dependency and of its limit keys in memory."""

    whole: Copies = field(init=False)
    shared: dict[str, CircuitInMemory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.whole = Copies(FRAGILE)

    @property
    def moment(self) -> Moment:
        return self.whole.moment

    def key(self, name: str, reporter: str = "w1") -> KeyCircuit:
        """Return the circuit of a key in a process; each has the dependency's in common."""
        new = CircuitInMemory(now=self.moment.now, whole=self.whole.shared)
        shared = self.shared.setdefault(name, new)
        settings, buffer = replace(self.whole.copy.settings, limit_key=name), ReportBuffer(reporter, FRAGILE)
        return KeyCircuit(settings, shared, buffer, self.moment.now, whole=self.whole.copy)

    async def calls(self, circuit: KeyCircuit, seconds: int, attempt: int = 1) -> int:
        """Let an attempt through each second; return how often the circuit was read."""
        shared = self.shared[circuit.settings.limit_key or ""]
        before = shared.reads
        for number in range(seconds):
            self.moment.pass_(1.1)
            permitted = of_type(Permitted, await circuit.enter(f"op-{number}", attempt, FIRST))
            assert not permitted.fail_open
        return shared.reads - before

    def control(self, control: ManualControl, for_seconds: float | None = None) -> None:
        action = ManualAction(control, self.moment.at, "ada", "maintenance", for_seconds, by_key=True)
        self.whole.shared.breaker = action.apply(self.whole.shared.breaker, self.moment.at)
        self.moment.pass_(1.1)


async def ask(
    circuit: KeyCircuit, operation_id: str = "op-1", *, waiting: bool = False
) -> Permitted | Blocked:
    return await circuit.enter(operation_id, 1, AdmissionState(waiting=waiting))


async def fail(circuit: KeyCircuit, moment: Moment, times: int) -> None:
    for number in range(times):
        permitted = of_type(Permitted, await ask(circuit, f"op-f{number}"))
        await circuit.leave(permitted, CallEnd(CallHealth.FAILURE, 0.1))
    moment.pass_(0.2)
    await circuit.reporting.flush()
    moment.pass_(1.1)


async def test_the_failures_of_a_key_open_its_circuit_alone() -> None:
    keys = Keys()
    bad, good = keys.key("bad"), keys.key("good")
    await fail(bad, keys.moment, 4)
    assert isinstance(await ask(bad), Refused)
    assert isinstance(await ask(good), Permitted)
    assert [keys.shared[name].breaker.state for name in ("bad", "good")] == ["open", "closed"]
    assert keys.shared["bad"].breaker.limit_key == "bad"
    assert replace(keys.whole.shared.breaker, keys=None, key_changes=None) == Breaker()


async def test_a_half_open_circuit_of_a_key_sends_its_operation_to_that_keys_entity() -> None:
    keys = Keys()
    bad = keys.key("bad")
    await fail(bad, keys.moment, 4)
    keys.moment.pass_(31)
    assert await ask(bad) == NeedsProbe(FRAGILE, "bad")


async def test_a_hold_of_the_dependency_holds_every_key_and_counts_those_who_wait() -> None:
    keys = Keys()
    keys.control(ManualControl.OPEN, 600)
    for name in ("a", "b"):
        held = of_type(Refused, await ask(keys.key(name)))
        assert held.reason == "the circuit is held open: maintenance"
    await ask(keys.key("a"), waiting=True)
    keys.moment.pass_(1.1)
    await keys.whole.copy.reporting.flush()
    assert keys.whole.shared.breaker.waiting == 2
    keys.control(ManualControl.CLOSE)
    assert isinstance(await ask(keys.key("a"), waiting=True), Permitted)


async def test_a_hold_of_the_dependency_holds_calls_beside_attempts_as_well() -> None:
    """Such as polls, and submissions that are refused while it is open: they read the key's circuit alone."""
    keys = Keys()
    key = keys.key("a")
    for control, is_held in ((ManualControl.OPEN, True), (ManualControl.CLOSE, False)):
        keys.control(control, 600 if is_held else None)
        await key.refresh_snapshot()
        answer = key.circuit_permit("op-1", keys.moment.at, waiting=False)
        assert isinstance(answer, Refused) == is_held


async def test_a_dependency_that_lets_everything_through_does_so_for_every_key() -> None:
    keys = Keys()
    bad = keys.key("bad")
    await fail(bad, keys.moment, 4)
    keys.control(ManualControl.DISABLE)
    assert isinstance(await ask(bad), Permitted)
    fresh = keys.key("fresh")
    keys.shared["fresh"].is_down = True
    assert await ask(fresh) == Permitted(0)


async def test_the_circuit_of_a_healthy_key_is_read_once_in_half_a_minute() -> None:
    keys = Keys()
    healthy = keys.key("healthy")
    assert await keys.calls(healthy, 27) == 1
    assert await keys.calls(healthy, 2) == 1


async def test_a_retry_reads_the_level_of_its_keys_budget() -> None:
    keys = Keys()
    assert await keys.calls(keys.key("healthy"), 3, attempt=2) == 3


async def test_a_key_is_read_each_second_while_its_calls_fail() -> None:
    keys = Keys()
    failing = keys.key("failing")
    await fail(failing, keys.moment, 1)
    assert await keys.calls(failing, 3) == 3
    keys.moment.pass_(31)
    assert await keys.calls(failing, 3) == 1


async def test_what_one_process_opens_holds_up_the_others_within_a_second() -> None:
    keys = Keys()
    failing, other = keys.key("a", "w1"), keys.key("a", "w2")
    await ask(other)
    await fail(failing, keys.moment, 4)
    assert isinstance(await ask(other), Refused)


async def test_a_pause_of_a_key_holds_up_the_other_processes_within_a_second() -> None:
    keys = Keys()
    paused, other = keys.key("a", "w1"), keys.key("a", "w2")
    await ask(other)
    permitted = of_type(Permitted, await ask(paused))
    until = keys.moment.at + timedelta(seconds=100)
    await paused.leave(permitted, CallEnd(throttled_until=until))
    keys.moment.pass_(1.1)
    assert of_type(Refused, await ask(other)).throttled


async def test_while_a_key_is_near_a_trip_every_process_reports_its_successes() -> None:
    keys = Keys()
    failing, other = keys.key("a", "w1"), keys.key("a", "w2")
    permitted = of_type(Permitted, await ask(other))
    await other.leave(permitted, CallEnd(CallHealth.SUCCESS, 0.1))
    await fail(failing, keys.moment, 1)
    await ask(other)
    assert keys.shared["a"].breaker.window.everything().calls == 2


async def test_a_change_that_gets_lost_is_seen_with_the_next_read() -> None:
    keys = Keys()
    failing, other = keys.key("a", "w1"), keys.key("a", "w2")
    keys.shared["a"].whole = None
    await ask(other)
    await fail(failing, keys.moment, 4)
    assert isinstance(await ask(other), Permitted)
    keys.moment.pass_(29)
    assert isinstance(await ask(other), NeedsProbe | Refused)


async def test_a_failed_read_keeps_nothing_for_later() -> None:
    keys = Keys()
    key = keys.key("a")
    await ask(key)
    keys.moment.pass_(31)
    keys.shared["a"].is_down = True
    assert await ask(key) == Permitted(1, fail_open=True)
    keys.moment.pass_(1.1)
    assert await ask(key) == Permitted(1, fail_open=True)


async def test_where_the_dependencys_circuit_cannot_be_read_that_of_the_key_is() -> None:
    keys = Keys()
    key = keys.key("a")
    keys.whole.shared.is_down = True
    assert await keys.calls(key, 3) == 3


@pytest.fixture
def moment() -> Iterator[Moment]:
    moment = Moment()
    with clock.reading(moment.now):
        yield moment


def a_dependency(by: str = "limit_key", most: int = 2) -> Dependency:
    settings = CircuitSettings(max_keys=most)
    return Dependency(name="payments", circuit=replace(settings, by="limit_key") if by else settings)


async def test_a_key_has_a_circuit_of_its_own_where_the_dependency_says_so(moment: Moment) -> None:
    del moment
    whole, key = circuit_of(HUB, a_dependency()), circuit_of(HUB, a_dependency(), "a")
    assert circuit_of(HUB, a_dependency(), "a") is key
    assert (key.settings.limit_key, whole.settings.limit_key) == ("a", None)
    assert circuit_of(HUB, a_dependency(by=""), "a") is circuit_of(HUB, a_dependency(by=""))
    close_circuits()


async def test_keys_beyond_the_most_share_the_dependencys_circuit_until_another_is_unused(
    moment: Moment,
) -> None:
    dependency = a_dependency(most=2)
    whole = circuit_of(HUB, dependency)
    used, unused = (circuit_of(HUB, dependency, name) for name in ("used", "unused"))
    assert circuit_of(HUB, dependency, "third") is whole
    moment.pass_(61)
    assert circuit_of(HUB, dependency, "used") is used
    assert circuit_of(HUB, dependency, "third").settings.limit_key == "third"
    assert circuit_of(HUB, dependency, "unused") is whole
    assert circuit_of(HUB, dependency, "used") is used
    assert unused.settings.limit_key == "unused"
    close_circuits()


async def test_a_pause_of_a_key_holds_while_the_dependency_lets_everything_through() -> None:
    keys = Keys()
    paused = keys.key("paused")
    permitted = of_type(Permitted, await ask(paused))
    until = keys.moment.at + timedelta(seconds=100)
    await paused.leave(permitted, CallEnd(throttled_until=until))
    keys.control(ManualControl.DISABLE)
    held = of_type(Refused, await ask(paused))
    assert (held.throttled, held.base, held.limit_key) == (True, until, "paused")
    assert isinstance(await ask(keys.key("other")), Permitted)
    paused.reporting.close()
