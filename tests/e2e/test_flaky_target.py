from collections.abc import Iterator

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, eventually
from tests.support.target import Target


@pytest.fixture
def client(target: Target, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A client whose requests carry the test's own name as their key."""
    headers = {"Idempotency-Key": request.node.name}
    with httpx.Client(base_url=target.url, headers=headers, timeout=10) as client:
        yield client


def statuses(client: httpx.Client, path: str, tries: int) -> list[int]:
    return [client.post(path, json={"amount": 5}).status_code for _ in range(tries)]


def test_fail_answers_the_status_so_often_and_then_echoes(client: httpx.Client) -> None:
    assert statuses(client, "/fail/2?status=502", 3) == [502, 502, 200]
    last = client.post("/fail/2?status=502", json={"amount": 5}).json()
    assert last["try"] == 4
    assert last["received"] == {"amount": 5}


def test_later_tries_are_answered_as_the_query_says(client: httpx.Client) -> None:
    assert statuses(client, "/fail/1?then=422", 3) == [503, 422, 422]


def test_throttle_says_how_long_to_wait(client: httpx.Client) -> None:
    answer = client.post("/throttle/1?retry_after=3")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert client.post("/throttle/1?retry_after=3").status_code == 200


def test_a_503_carries_retry_after_when_asked_to(client: httpx.Client) -> None:
    assert client.post("/fail/1?retry_after=2").headers["retry-after"] == "2"
    assert "retry-after" not in client.post("/status/503").headers


def test_hang_gives_no_answer_in_time(client: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.post("/hang/1?seconds=20", timeout=0.2)
    assert client.post("/hang/1?seconds=20", timeout=5).status_code == 200


@pytest.mark.parametrize("when", ["before_body", "after_body", "mid_response"])
def test_drop_resets_the_connection_and_counts_the_try(
    client: httpx.Client, target: Target, when: str
) -> None:
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError)):
        client.post(f"/drop/1?when={when}", content=b"x" * 10)
    assert client.post(f"/drop/1?when={when}").status_code == 200
    assert target.received(client.headers["Idempotency-Key"])["count"] == 2


def test_slow_takes_its_time_and_then_is_whole(client: httpx.Client) -> None:
    answer = client.post("/slow/1?seconds=0.3")
    assert answer.elapsed.total_seconds() >= 0.25
    assert answer.json()["ok"] is True


def test_huge_has_exactly_the_bytes_asked_for(client: httpx.Client) -> None:
    assert len(client.get("/huge/1?bytes=200001").content) == 200_001


def test_redirect_points_elsewhere(client: httpx.Client) -> None:
    answer = client.post("/redirect/1?to=http://127.0.0.1:1/")
    assert (answer.status_code, answer.headers["location"]) == (307, "http://127.0.0.1:1/")


def test_garbled_is_a_200_that_is_not_json(client: httpx.Client) -> None:
    answer = client.post("/garbled/1")
    assert answer.status_code == 200
    with pytest.raises(ValueError, match="Unterminated"):
        answer.json()


def test_a_key_sees_when_and_how_often_it_was_tried(client: httpx.Client, target: Target) -> None:
    statuses(client, "/fail/1", 2)
    record = target.received(client.headers["Idempotency-Key"])
    assert (record["count"], record["in_flight"], record["most_in_flight"]) == (2, 0, 1)
    first, second = record["tries"]
    assert first["received_at"] < second["received_at"]
    assert first["headers"]["idempotency-key"] == client.headers["Idempotency-Key"]


def test_a_client_that_leaves_is_no_longer_in_flight(client: httpx.Client, target: Target) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.post("/hang/1?seconds=30", timeout=0.2)

    key = client.headers["Idempotency-Key"]
    eventually(
        lambda: target.received(key)["in_flight"] == 0, "the hanging request is given up", within_seconds=5
    )


@pytest.mark.parametrize("path", ["/fail/1?status=many", "/throttle/1?form=weeks", "/drop/1?when=never"])
def test_an_instruction_that_makes_no_sense_is_refused(client: httpx.Client, path: str) -> None:
    answer = client.post(path)
    assert answer.status_code == 400
    assert answer.json()["title"] == "Bad instruction"


def test_an_outage_fails_everything_until_it_is_over(tmp_path_factory: pytest.TempPathFactory) -> None:
    own = Target(tmp_path_factory.mktemp("outage"))
    own.server.start()
    try:
        own.outage(on=True)
        assert httpx.post(f"{own.url}/echo", verify=PLAIN_HTTP).status_code == 503
        own.outage(on=True, status=0)
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{own.url}/echo", verify=PLAIN_HTTP)
        own.outage(on=False)
        assert httpx.post(f"{own.url}/echo", verify=PLAIN_HTTP).status_code == 200
    finally:
        own.server.stop()
