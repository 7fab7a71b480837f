import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.storage.queue import QueueClient

from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, operation_id_for
from scripts.processes import eventually
from tests.support.app import System, operation
from tests.support.semantics import is_on_azures_terms
from tests.support.target import Target

SETTINGS = Path(__file__).with_name("circuits.toml")


@pytest.fixture(scope="module")
def circuits(tmp_path_factory: pytest.TempPathFactory, own_target: Target) -> Iterator[System]:
    """An app whose circuits trip soon, and whose attempts are made by two worker processes in turn."""
    folder = tmp_path_factory.mktemp("circuits")
    system = System(
        folder,
        own_target,
        DEPENDENCIES_FILE=str(SETTINGS),
        INTAKE_DEPENDENCY_LAG_SECONDS="1",
        WEBSITE_AUTH_ENABLED="True",
    )
    port = str(httpx.URL(system.url).port)
    system.server.command = [sys.executable, "-m", "tests.support.two_workers", str(folder), port]
    with system.running():
        yield system


def worker_logs(system: System) -> list[str]:
    return [log.read_text() for log in system.server.log.parent.glob("worker-*.log")]


@contextmanager
def outage(target: Target) -> Iterator[None]:
    target.outage(on=True)
    try:
        yield
    finally:
        target.outage(on=False)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def circuit(system: System, dependency: str) -> dict[str, Any]:
    view: dict[str, Any] = system.client.get(f"/api/circuits/{dependency}").raise_for_status().json()
    return view


def change_circuit(
    system: System, dependency: str, control: str, *, by: str | None = None, **body: Any
) -> None:
    headers = {} if by is None else {"x-ms-client-principal-name": by, "x-ms-client-principal-id": by}
    answer = system.client.post(f"/api/circuits/{dependency}/{control}", json=body, headers=headers)
    assert answer.status_code == 202, answer.text


def until_view(
    system: System, dependency: str, holds: Callable[[dict[str, Any]], bool], what: str
) -> dict[str, Any]:
    """Returns the circuit's view once something holds of it."""

    def look() -> dict[str, Any] | None:
        view = circuit(system, dependency)
        return view if holds(view) else None

    return eventually(look, f"the circuit of {dependency} {what}")


def until_state(system: System, dependency: str, state: str) -> dict[str, Any]:
    return until_view(system, dependency, lambda view: view["state"] == state, f"is {state}")


def posted(system: System, dependency: str, keys: list[str], path: str = "/echo") -> list[str]:
    with ThreadPoolExecutor(10) as posters:
        return list(posters.map(lambda key: system.accepted(key, path, dependency=dependency), keys))


def arrivals(target: Target, keys: list[str]) -> list[datetime]:
    return sorted(instant(one["received_at"]) for key in keys for one in target.received(key)["tries"])


def until_held(system: System, dependency: str, key: str, state: str = "waiting_circuit", **more: Any) -> str:
    """Post operations until one is held up: a worker may have an old copy, or fail open at its first read."""
    keys = (f"{key}-{number}" for number in count())

    def post_one() -> str | None:
        operation_id = system.accepted(next(keys), "/echo", dependency=dependency, **more)
        return operation_id if judged(system, operation_id) == state else None

    return eventually(post_one, f"{dependency} holds an operation up")


def until_all_held(system: System, dependency: str, key: str) -> str:
    """Post operations until each of many is held up, so that every worker has read of the hold."""
    posts = count()

    def post_many() -> str | None:
        keys = [f"{key}-before-{next(posts)}" for _ in range(20)]
        ids = posted(system, dependency, keys)
        return ids[0] if all(judged(system, each) == "waiting_circuit" for each in ids) else None

    return eventually(post_many, f"all workers hold {dependency} up")


def judged(system: System, operation_id: str) -> str:
    """Return the state of an operation once its worker let it go or held it up."""

    def look() -> str | None:
        state = str(system.status(operation_id)["status"])
        return state if state in {"waiting_circuit", "waiting_throttle", "succeeded"} else None

    return eventually(look, "it was judged")


@pytest.mark.long
@pytest.mark.shows("D7")
def test_a_dependency_that_dies_is_left_alone_probed_and_flooded_by_nobody_when_it_recovers(
    circuits: System, own_target: Target, key: str
) -> None:
    keys = [f"{key}-{number}" for number in range(150)]
    with outage(own_target):
        ids = posted(circuits, "dying", keys)
        opened = until_state(circuits, "dying", "open")
        tripped_at = instant(opened["opened_at"])
        assert "failed" in opened["reason"]
        # A slow machine may show a later opening than the first; a probe lies before the next in any case.
        again = until_view(circuits, "dying", lambda view: opened_after(view, tripped_at), "saw a probe fail")
        assert again["reason"] == "a probe failed"
        probed_at = instant(again["opened_at"])
        assert instant(again["retry_at"]) - probed_at >= timedelta(seconds=4)
        once_more = until_view(
            circuits, "dying", lambda view: opened_after(view, probed_at), "saw one more probe fail"
        )
        recovered_at = datetime.now(UTC)
    documents = [circuits.until(each, "succeeded", within_seconds=60) for each in ids]

    came = arrivals(own_target, keys)
    # Calls that were under way when the circuit opened have come before the first probe fails.
    probes = [at for at in came if probed_at < at < recovered_at]
    assert len(probes) >= 1
    # Each break is over before the circuit opens again, and twice as long as the one before.
    opened_at = [tripped_at, probed_at, instant(once_more["opened_at"])]
    apart = [later - earlier for earlier, later in pairwise(opened_at)]
    assert all(lasted >= timedelta(seconds=min(30, 2 * 2**n)) for n, lasted in enumerate(apart))
    if not any("The circuit of dying cannot be read" in log for log in worker_logs(circuits)):
        # A machine on which a read takes longer than a second lets calls go without the circuit.
        assert all(later - earlier >= timedelta(seconds=2) for earlier, later in pairwise(probes))
    per_second = Counter(int((at - recovered_at).total_seconds()) for at in came if at > recovered_at)
    assert max(per_second.values()) <= 100
    assert circuit(circuits, "dying")["state"] == "closed"
    for document in documents:
        assert_explained(document)
    assert sum(document["attempt_count"] for document in documents) == len(came)
    assert len(reporters(circuits, "dying")) == 2
    ended = eventually(lambda: outage_of(circuits, "dying"), "the outage has ended in the activity")
    assert (instant(ended["at"]), instant(ended["until"]) > recovered_at) == (tripped_at, True)
    assert re.fullmatch(r"the circuit was open for .+; \d+ probes failed", ended["what"])


def opened_after(view: dict[str, Any], tripped_at: datetime) -> bool:
    return view["state"] == "open" and instant(view["opened_at"]) > tripped_at


def outage_of(system: System, dependency: str) -> dict[str, Any] | None:
    """Return the one entry that the activity has of an outage, once that is over."""
    query = {"kind": "circuit", "dependency": dependency}
    items = system.client.get("/api/activity", params=query).raise_for_status().json()["items"]
    assert len(items) <= 1
    return next((each for each in items if each["until"]), None)


def reporters(system: System, dependency: str) -> list[str]:
    answer = system.client.get(f"/runtime/webhooks/durabletask/entities/circuit_breaker/{dependency}")
    if answer.status_code != httpx.codes.OK:
        return []
    return [name for name, *_ in answer.json()["reporters"].get("remembered", ())]


def assert_explained(document: dict[str, Any]) -> None:
    assert all(attempt["delay_reasons"] for attempt in document["attempts"][:-1])
    held = [wait for wait in document["waits"] if wait["kind"] == "circuit"]
    assert held
    for wait in held:
        assert wait["before_attempt"] <= document["attempt_count"]
        assert wait["times"] >= 1
        assert instant(wait["began_at"]) < instant(wait["until"])
        assert any("circuit" in reason for reason in wait["delay_reasons"])


def test_a_circuit_held_open_by_hand_holds_operations_up_and_closing_it_lets_them_go(
    circuits: System, own_target: Target, key: str
) -> None:
    change_circuit(circuits, "held", "open", by="ada@example.com", reason="maintenance", for_seconds=600)
    until_state(circuits, "held", "forced_open")
    operation_id = until_held(circuits, "held", key)
    waiting = circuits.status(operation_id)
    assert waiting["attempt_count"] == 0
    assert waiting["next_attempt_at"] == waiting["waits"][-1]["until"]
    assert "maintenance" in waiting["waits"][-1]["delay_reasons"][0]
    assert waiting["key"] not in own_target.totals()

    change_circuit(circuits, "held", "close", reason="done early")
    done = circuits.until(operation_id, "succeeded")
    is_woken = instant(done["updated_at"]) < instant(waiting["next_attempt_at"])
    assert is_woken or is_on_azures_terms()
    trail = circuit(circuits, "held")["audit"]
    assert [(each["action"], each["by"], each["reason"]) for each in trail] == [
        ("close", "api", "done early"),
        ("open", "ada@example.com", "maintenance"),
    ]


def test_one_attempt_is_let_through_a_circuit_that_stays_as_it_is(
    circuits: System, own_target: Target, key: str
) -> None:
    change_circuit(circuits, "tried", "open", reason="maintenance", for_seconds=600)
    until_state(circuits, "tried", "forced_open")
    held = [until_held(circuits, "tried", f"{key}-{name}") for name in ("tried", "other")]
    path = f"/api/operations/{held[0]}/try"
    assert circuits.client.post(path, json={}).status_code == 400
    answer = circuits.client.post(path, json={"reason": "the supplier says that it works"})
    assert answer.status_code == 202, answer.text
    done = circuits.until(held[0], "succeeded")
    assert done["attempts"][-1]["delay_reasons"] == [
        "sent past the circuit, which does not count it and stays as it is"
    ]
    last = done["actions"][-1]
    assert (last["action"], last["reason"]) == ("try", "the supplier says that it works")
    assert own_target.totals()[done["key"]] == 1
    view = circuit(circuits, "tried")
    assert (view["state"], circuits.status(held[1])["status"]) == ("forced_open", "waiting_circuit")
    assert circuits.client.post(path, json={"reason": "again"}).status_code == 409


def test_a_change_of_an_epoch_that_is_over_is_a_409(circuits: System) -> None:
    seen = circuit(circuits, "freed")["epoch"]
    body = {"reason": "as I saw it", "epoch": seen + 1}
    assert circuits.client.post("/api/circuits/freed/reset", json=body).status_code == httpx.codes.CONFLICT
    body["epoch"] = seen
    assert circuits.client.post("/api/circuits/freed/reset", json=body).status_code == httpx.codes.ACCEPTED


@pytest.mark.shows("D2")
def test_one_429_pauses_the_dependency_for_everyone(circuits: System, own_target: Target, key: str) -> None:
    first = circuits.accepted(f"{key}-first", "/throttle/1?retry_after=6", dependency="throttling")
    paused = until_view(circuits, "throttling", lambda view: view["throttled_until"] is not None, "is paused")
    assert (paused["state"], paused["failures"]) == ("closed", 0)
    held = until_held(circuits, "throttling", f"{key}-other", "waiting_throttle")
    waits = circuits.status(held)["waits"]
    assert waits[-1]["delay_reasons"][0].startswith("paused by 429 (Retry-After 6 s) until ")
    done = circuits.until(held, "succeeded")
    throttled_until = instant(paused["throttled_until"])
    assert arrivals(own_target, [done["key"]])[0] >= throttled_until
    circuits.until(first, "succeeded")


def postponed_by_the_budget(circuits: System, ids: list[str]) -> list[dict[str, Any]]:
    documents = map(circuits.status, ids)
    return [each for each in documents if "retry_budget" in [wait["kind"] for wait in each.get("waits", ())]]


def waiting_for_the_budget(circuits: System, ids: list[str]) -> dict[str, Any] | None:
    """Return an operation that waits for the retry budget at this moment; each may go on at any time."""
    documents = (circuits.status(each) for each in ids)
    return next(
        (
            document
            for document in documents
            if document["status"] == "waiting_retry"
            and document.get("waits", [{"kind": None}])[-1]["kind"] == "retry_budget"
        ),
        None,
    )


@pytest.mark.shows("D9")
def test_retries_beyond_the_budget_are_postponed(circuits: System, own_target: Target, key: str) -> None:
    posted(circuits, "scarce", [f"{key}-first-{number}" for number in range(8)], "/fail/1")
    # Each worker takes its share only, once the circuit knows of both.
    eventually(lambda: len(reporters(circuits, "scarce")) == 2, "the circuit knows of both workers")
    keys = [f"{key}-{number}" for number in range(12)]
    with outage(own_target):
        ids = posted(circuits, "scarce", keys)
        eventually(lambda: len(postponed_by_the_budget(circuits, ids)) >= 5, "some are postponed")
        postponed = eventually(lambda: waiting_for_the_budget(circuits, ids), "one is seen while it waits")
        assert "retry budget of scarce" in postponed["waits"][-1]["delay_reasons"][0]
        came = arrivals(own_target, keys)
        seconds = (came[-1] - came[0]).total_seconds()
        # Ten seconds of credit, a fifth of the first attempts, four a second, and what copies can overdraw.
        assert len(came) - len(keys) <= 40 + 0.2 * len(keys) + 4 * seconds + 10
    for each in ids:
        circuits.until(each, "succeeded", within_seconds=90)


@pytest.mark.long
def test_the_intake_of_a_dependency_that_is_far_behind_slows_down_until_it_catches_up(
    circuits: System, own_target: Target, key: str
) -> None:
    change_circuit(circuits, "behind", "open", reason="maintenance")
    until_state(circuits, "behind", "forced_open")
    until_all_held(circuits, "behind", key)
    with QueueClient.from_connection_string(
        circuits.server.env["AzureWebJobsStorage"], "operations"
    ) as queue:
        queue.send_message(json.dumps(operation(f"{key}-probe", "/echo", dependency="behind")))
        probe = operation_id_for(EXPLICIT_SCOPE, f"{key}-probe")
        eventually(lambda: is_held_for(circuits, probe, seconds=1), "it shows that the dependency is behind")

        queue.send_message(json.dumps(operation(f"{key}-later", "/echo", dependency="behind")))
        queue.send_message(json.dumps(operation(f"{key}-other", "/echo", dependency="freed")))
        eventually(lambda: f"{key}-other" in own_target.totals(), "what goes elsewhere is not held up")
        eventually(lambda: not queue.peek_messages(), "the later one is being delivered")
        assert queue.get_queue_properties().approximate_message_count == 1
        later = operation_id_for(EXPLICIT_SCOPE, f"{key}-later")
        assert circuits.client.get(f"/api/operations/{later}").status_code == httpx.codes.NOT_FOUND

        change_circuit(circuits, "behind", "close", reason="done")
        eventually(lambda: f"{key}-later" in own_target.totals(), "it is started once there is no lag")
        circuits.until(later, "succeeded")
        eventually(lambda: queue.get_queue_properties().approximate_message_count == 0, "it was taken over")


def is_held_for(system: System, operation_id: str, *, seconds: float) -> bool:
    """Whether an operation has been waiting for the circuit for more than so long since its start."""
    answer = system.client.get(f"/api/operations/{operation_id}")
    if answer.status_code != httpx.codes.OK or answer.json()["status"] != "waiting_circuit":
        return False
    return datetime.now(UTC) - instant(answer.json()["created_at"]) > timedelta(seconds=seconds)


def test_a_circuit_that_is_switched_off_shows_so_and_takes_no_manual_control(circuits: System) -> None:
    assert circuit(circuits, "flaky")["state"] == "disabled"
    answer = circuits.client.post("/api/circuits/flaky/open", json={"reason": "why not"})
    assert answer.status_code == 409
    assert answer.headers["content-type"].startswith("application/problem+json")


def refused_by(system: System, dependency: str) -> Any:
    return circuit(system, dependency).get("credential_refused_by")


@pytest.mark.shows("D20")
def test_an_outage_that_ends_in_a_revoked_credential_is_one_problem_and_nothing_dies_of_it(
    circuits: System, own_target: Target, key: str
) -> None:
    with outage(own_target):
        ids = [circuits.accepted(f"{key}-{n}", "/echo", dependency="guarded") for n in range(30)]
        eventually(lambda: circuit(circuits, "guarded")["state"] == "open", "the circuit opens")
        own_target.outage(on=True, status=401)
        eventually(lambda: refused_by(circuits, "guarded") == "401", "a probe is refused")
        view = circuit(circuits, "guarded")
        assert view["reason"] in {"the credential is refused (401)", "the break is over"}
        probes = view["failed_probes"]
        eventually(lambda: circuit(circuits, "guarded")["failed_probes"] > probes + 1, "more probes fail")
        late = circuits.accepted(f"{key}-late", "/echo", dependency="guarded")
        waits = circuits.until(late, "waiting_circuit")["waits"]
        assert waits[-1]["delay_reasons"][0].startswith("guarded answers 401")
        assert circuits.client.get("/api/health").json()["parts"]["credentials"]["healthy"] is False
        glances = circuits.client.get("/api/overview").json()["circuits"]
        assert [one["dependency"] for one in glances if one.get("credential_refused_by")] == ["guarded"]
        assert not dead_letters_of(circuits, "guarded")
    ended = [circuits.until(each, "succeeded", within_seconds=60) for each in (*ids, late)]
    assert max(document["attempt_count"] for document in ended) <= 5
    assert ended[-1]["attempt_count"] == 1
    assert refused_by(circuits, "guarded") is None
    assert not dead_letters_of(circuits, "guarded")


def dead_letters_of(system: System, dependency: str) -> list[Any]:
    answer = system.client.get("/api/dead-letters", params={"dependency": dependency})
    items: list[Any] = answer.raise_for_status().json()["items"]
    return items


def test_a_callers_own_credential_concerns_its_operation_alone(circuits: System, key: str) -> None:
    ids = [
        circuits.accepted(
            f"{key}-{n}",
            "/status/401",
            dependency="guarded",
            request={"method": "POST", "path": "/status/401", "headers": {"X-Api-Key": "mine"}, "json": 1},
        )
        for n in range(4)
    ]
    for each in ids:
        assert circuits.until(each, "dead_lettered")["dead_letter"]["category"] == "unauthorized"
    assert circuit(circuits, "guarded")["state"] == "closed"


def test_an_operation_that_does_not_wait_is_refused_while_the_circuit_is_open(
    circuits: System, key: str
) -> None:
    held = {"reason": "a test", "for_seconds": 60.0}
    assert circuits.client.post("/api/circuits/refusing/open", json=held).status_code == 202

    def refused() -> httpx.Response | None:
        answer = circuits.post(f"{key}-{datetime.now(UTC).timestamp()}", "/echo", dependency="refusing")
        return answer if answer.status_code == 503 else None

    answer = eventually(refused, "the refusal")
    assert answer.json()["type"] == "/problems/circuit-open"
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    waiting = circuits.accepted(f"{key}-waits", "/echo", dependency="refusing", when_open="wait")
    circuits.until(waiting, "waiting_circuit")
    over = {"reason": "over"}
    assert circuits.client.post("/api/circuits/refusing/close", json=over).status_code == 202
    circuits.until(waiting, "succeeded")
