"""What Microsoft's public samples do; the app names them."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, eventually
from tests.support.onebox.process import APPS, OneboxProcess

APP = APPS / "public_samples"
ENDED = {"Completed", "Failed", "Terminated"}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    """The app of the samples; it needs no storage."""
    onebox = OneboxProcess(tmp_path_factory.mktemp("samples"), APP)
    onebox.server.start()
    yield onebox
    assert onebox.close() == 0


def started(samples: OneboxProcess, name: str, given: Any = None) -> dict[str, str]:
    """The links that a start answers with (the asynchronous HTTP API)."""
    answer = samples.client.post(f"/api/orchestrators/{name}", json=given)
    assert answer.status_code == 202
    links: dict[str, str] = answer.json()
    assert answer.headers["location"].partition("?")[0] == links["statusQueryGetUri"].partition("?")[0]
    return links


def ended(links: dict[str, str]) -> dict[str, Any]:
    """The instance at its end: 202 while it runs, 200 after."""

    def look() -> dict[str, Any] | None:
        answer = httpx.get(links["statusQueryGetUri"], verify=PLAIN_HTTP)
        state: dict[str, Any] = answer.json()
        assert (answer.status_code == 200) == (state["runtimeStatus"] in ENDED)
        return state if answer.status_code == 200 else None

    return eventually(look, "the orchestration ends")


def output_of(samples: OneboxProcess, name: str, given: Any = None) -> Any:
    state = ended(started(samples, name, given))
    assert state["runtimeStatus"] == "Completed", state
    return state["output"]


def test_function_chaining(samples: OneboxProcess) -> None:
    assert output_of(samples, "bake", "lemon") == "lemon cake, in slices"


def test_fan_out_fan_in(samples: OneboxProcess) -> None:
    texts = ["a short text", "an exceptionally long one", "words"]
    assert output_of(samples, "longest_word", texts) == "exceptionally"


def test_human_interaction_with_an_answer(samples: OneboxProcess) -> None:
    links = started(samples, "leave_request", 60)
    answer = {"granted": True, "because": "why not"}
    assert samples.client.post(f"/api/decisions/{links['id']}", json=answer).status_code == 202
    assert ended(links)["output"] == answer


def test_human_interaction_without_an_answer(samples: OneboxProcess) -> None:
    assert output_of(samples, "leave_request", 0.2) == {"granted": False, "because": "nobody answered"}


def test_durable_entities(samples: OneboxProcess) -> None:
    assert output_of(samples, "deposit", {"account": "ada", "amount": 5}) == 5
    assert output_of(samples, "deposit", {"account": "ada", "amount": 2}) == 7
    assert output_of(samples, "deposit", {"account": "bob", "amount": 1}) == 1


def test_monitoring(samples: OneboxProcess) -> None:
    state = ended(started(samples, "watch_parcel"))
    assert (state["output"], state["customStatus"]) == ({"looks": 3}, {"looks": 3, "place": "door"})


def test_eternal_orchestrations(samples: OneboxProcess) -> None:
    assert output_of(samples, "tidy") == 3


def test_hello_cities_with_a_child_and_an_entity(samples: OneboxProcess) -> None:
    greetings = ["Good morning, Oslo", "Good morning, Quito"]
    assert output_of(samples, "tour", ["Oslo", "Quito"]) == {"greetings": greetings, "stops": 2}


def test_large_payloads(samples: OneboxProcess) -> None:
    assert output_of(samples, "weigh", 100) == 5 * 100 * 1024
