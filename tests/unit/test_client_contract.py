import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from durable_retry.base.names import FINISHED
from durable_retry.features.in_process.documents import OperationFields
from durable_retry.features.openapi.routes import described
from durable_retry_client import AsyncClient, Client, documents

SCHEMAS = described()["components"]["schemas"]
READ = {
    documents.Operation: "OperationDocument",
    documents.AcceptedOperation: "AcceptedOperation",
    documents.SteeredOperation: "SteeredOperation",
    documents.StartedReplay: "StartedReplay",
    documents.DeadLetter: "DeadLetterDocument",
    documents.Page[documents.DeadLetter]: "DeadLetterPage",
    documents.Problem: "ProblemDocument",
}
TAKEN = {documents.OperationFields: "OperationRequest", documents.ReplayFields: "ReplayBody"}


def alternatives(schema: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """What a schema allows, one by one, each without references at its top."""
    if "$ref" in schema:
        return alternatives(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return [one for each in schema["anyOf"] for one in alternatives(each, definitions)]
    return [schema]


@dataclass(frozen=True)
class Reader:
    """Compares what a class of the client reads with the API's description; keeps the places that differ."""

    definitions: dict[str, Any]
    differences: list[str] = field(default_factory=list)

    def compare(self, ours: dict[str, Any], theirs: dict[str, Any], place: str) -> None:
        own = {one.get("type"): one for one in alternatives(ours, self.definitions)}
        their = {one.get("type"): one for one in alternatives(theirs, SCHEMAS)}
        # The client may take null where the API has a value.
        if own.keys() | {"null"} != their.keys() | {"null"} or their.keys() - own.keys():
            self.differences.append(f"{place}: {sorted(map(str, own))} reads {sorted(map(str, their))}")
        for kind in own.keys() & their.keys():
            self._compare_one(own[kind], their[kind], place)

    def _compare_one(self, own: dict[str, Any], their: dict[str, Any], place: str) -> None:
        if own.get("format") != their.get("format"):
            self.differences.append(f"{place}: {own.get('format')} reads {their.get('format')}")
        if "items" in own:
            self.compare(own["items"], their["items"], f"{place}/*")
        # An object without members is read as the JSON that it is.
        if "properties" in own:
            members, shown = own["properties"], their["properties"]
            wanted = set(own.get("required", ())) - set(their["required"])
            self.differences.extend(f"{place}/{name}" for name in (members.keys() ^ shown.keys()) | wanted)
            for name in members.keys() & shown.keys():
                self.compare(members[name], shown[name], f"{place}/{name}")


@pytest.mark.parametrize(("model", "name"), READ.items(), ids=READ.values())
def test_the_client_reads_every_member_that_the_api_describes(model: type[BaseModel], name: str) -> None:
    schema = model.model_json_schema()
    reader = Reader(schema.get("$defs", {}))
    reader.compare(schema, SCHEMAS[name], name)
    assert reader.differences == []


def test_a_difference_is_found() -> None:
    class Accepted(BaseModel):
        operation_id: int
        key: str
        status_url: str
        later: str

    reader = Reader({})
    reader.compare(Accepted.model_json_schema(), SCHEMAS["AcceptedOperation"], "accepted")
    assert {each.partition(":")[0] for each in reader.differences} == {
        *("accepted/operation_id", "accepted/status", "accepted/later")
    }


@pytest.mark.parametrize(("fields", "name"), TAKEN.items(), ids=TAKEN.values())
def test_the_client_takes_what_the_api_describes(fields: type, name: str) -> None:
    assert fields.__annotations__.keys() == SCHEMAS[name]["properties"].keys()


def test_the_app_takes_the_same_operation_in_the_process() -> None:
    assert OperationFields.__annotations__.keys() == documents.OperationFields.__annotations__.keys()


def test_the_filters_of_dead_letters_are_those_of_the_description() -> None:
    parameters = described()["paths"]["/api/dead-letters"]["get"]["parameters"]
    named = {each["name"] for each in parameters if each["in"] == "query"} - {"limit", "cursor"}
    assert documents.DeadLetterFilters.__annotations__.keys() == named


def test_an_operation_ends_in_the_same_states() -> None:
    assert documents.FINISHED == FINISHED


type Ask = Callable[[Any], Any]

ASKED: dict[str, Ask] = {
    "GET /api/operations/{operation_id}": lambda client: client.get("x"),
    "POST /api/operations/{operation_id}/cancel": lambda client: client.cancel("x"),
    "POST /api/operations/{operation_id}/retry-now": lambda client: client.retry_now("x"),
    "GET /api/dead-letters": lambda client: client.dead_letters(status="open"),
    "POST /api/dead-letters/{dead_letter_id}/replay": lambda client: client.replay("x", note="mended"),
    "GET /api/outbox": lambda client: client.items("outbox", status="failed"),
    "GET /api/circuits": lambda client: client.request("GET", "circuits"),
    "POST /api/circuits/{dependency}/open": lambda client: client.request(
        "POST", "circuits/x/open", body={"reason": "r"}
    ),
    "DELETE /api/bulk-actions/{action_id}": lambda client: client.request("DELETE", "bulk-actions/x"),
}


def described_answer(route: str) -> Any:
    """The example of a success in the API's description, on the last page where it is a list."""
    method, path = route.split()
    answers = described()["paths"][path][method.lower()]["responses"]
    example = answers[max(status for status in answers if status < "300")]["content"]["application/json"][
        "example"
    ]
    return example | ({"next_cursor": None} if "next_cursor" in example else {})


async def result_of(asked: Any) -> Any:
    """The result of a call of either client; of a list its items."""
    if inspect.isawaitable(asked):
        return await asked
    if inspect.isasyncgen(asked):
        return [item async for item in asked]
    return list(asked) if inspect.isgenerator(asked) else asked


@pytest.mark.parametrize("route", ASKED)
async def test_both_clients_ask_for_the_same_and_read_what_is_described(route: str) -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=described_answer(route))

    with Client("http://app", transport=httpx.MockTransport(answer)) as client:
        blocking = await result_of(ASKED[route](client))
    async with AsyncClient("http://app", transport=httpx.MockTransport(answer)) as awaited:
        assert blocking == await result_of(ASKED[route](awaited)) != []
    method, path = route.split()
    asked = f"{method} {re.sub('{[a-z_]+}', 'x', path)}"
    assert [f"{request.method} {request.url.path}" for request in requests] == [asked, asked]
    assert requests[0].content == requests[1].content
