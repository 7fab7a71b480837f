from dataclasses import replace
from datetime import timedelta

from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.circuit.messages import KeyFigures, view_of, why_of_keys
from durable_retry.rules.circuit.states import CircuitState
from tests.support.builders import after
from tests.support.circuit import SETTINGS, Desk, tripped


def why(desk: Desk, at: float) -> str | None:
    return view_of("payments", desk.breaker, after(at), SETTINGS).why


def paused(desk: Desk, at: float, until: float) -> None:
    report = desk.report(at, throttled_until=until)
    desk.hear(replace(report, throttled_by="429 (Retry-After 1800 s)"))


def test_nothing_holds_calls_up_while_the_circuit_is_closed() -> None:
    assert why(Desk(), 0) is None


def test_an_open_circuit_says_since_when_and_what_the_last_call_got() -> None:
    desk = Desk()
    desk.hear(replace(desk.report(0, failures=10), last_error="503: no upstream"))
    opened = "open since 2026-11-21T12:00:00Z"
    assert why(desk, 1) == f"{opened}: 10 of 10 calls in 30 s failed, the last call got 503: no upstream"
    desk.ask(31)
    desk.conclude(32, CallHealth.FAILURE)
    assert why(desk, 33) == f"{opened}: 1 probe failed, the last one got 503: no upstream"


def test_a_pause_comes_before_the_outage_that_it_follows() -> None:
    desk = Desk()
    desk.hear(replace(desk.report(0, failures=10), last_error="503: no upstream"))
    paused(desk, 31, until=1_831)
    pause = "paused by 429 (Retry-After 1800 s) until 2026-11-21T12:30:31Z"
    assert why(desk, 40) == f"{pause}; open before that since 2026-11-21T12:00:00Z (503: no upstream)"
    assert why(desk, 1_840) == (
        "open since 2026-11-21T12:00:00Z: the break is over, the last call got 503: no upstream"
    )


def test_a_pause_after_an_outage_without_an_error_says_since_when_it_was_open() -> None:
    desk = tripped()
    paused(desk, 31, until=60)
    assert why(desk, 40) == (
        "paused by 429 (Retry-After 1800 s) until 2026-11-21T12:01:00Z; "
        "open before that since 2026-11-21T12:00:00Z"
    )


def test_a_pause_alone_says_who_asked_for_it_and_one_of_nobody_names_the_dependency() -> None:
    desk = Desk()
    paused(desk, 0, until=60)
    assert why(desk, 1) == "paused by 429 (Retry-After 1800 s) until 2026-11-21T12:01:00Z"
    assert why(desk, 61) is None
    desk.hear(desk.report(70, throttled_until=100))
    assert why(desk, 71) == "paused by the dependency until 2026-11-21T12:01:40Z"


def test_a_refused_credential_says_what_to_do() -> None:
    desk = Desk().refuse(0, times=3)
    assert why(desk, 1) == ("the credential is refused (401): set a new one; open since 2026-11-21T12:00:00Z")


def test_a_hold_by_hand_comes_first_since_it_does_not_end_with_a_pause() -> None:
    desk = Desk().control(0, ManualControl.OPEN)
    held = "held open by ana since 2026-11-21T12:00:00Z: drill"
    assert why(desk, 1) == held
    paused(desk, 2, until=60)
    assert why(desk, 3) == f"{held}; paused by 429 (Retry-After 1800 s) until 2026-11-21T12:01:00Z"


def key(name: str, kind: str = "open") -> KeyFigures:
    desk = Desk()
    if kind == "open":
        desk.fail(0)
    elif kind == "refused":
        desk.refuse(0, times=3)
    else:
        paused(desk, 0, until=60)
    breaker = replace(desk.breaker, limit_key=name)
    return KeyFigures.taken_from(view_of("crm", breaker, after(1), SETTINGS))


def test_a_dependency_says_why_calls_of_its_one_limit_key_do_not_go() -> None:
    assert why_of_keys([]) is None
    paused_key = key("initech", "paused")
    assert paused_key.state is CircuitState.CLOSED
    assert why_of_keys([paused_key]) == f"for initech: {paused_key.why}"


def test_a_dependency_names_the_limit_keys_whose_calls_do_not_go_by_what_holds_them_up() -> None:
    keys = [key("acme"), key("initech", "paused"), key("globex", "refused"), key("hooli")]
    assert why_of_keys(keys) == (
        "the credential is refused for 1 limit key: globex; paused for 1 limit key: initech; "
        "open for 2 limit keys: acme, hooli"
    )
    many = why_of_keys([key(f"c-{number}") for number in range(7)])
    assert many == "open for 7 limit keys: c-0, c-1, c-2, c-3, c-4 and 2 more"


def test_the_circuit_of_a_key_with_few_calls_opens_by_refusals_in_a_row() -> None:
    desk = Desk()
    for seconds in (0, 200, 400):
        desk.refuse(seconds)
    view = view_of("crm", replace(desk.breaker, limit_key="initech"), after(400), SETTINGS)
    assert (view.state, view.credential_refused_by) == ("open", "401")
    assert view.retry_at == after(400) + timedelta(seconds=SETTINGS.break_seconds)
