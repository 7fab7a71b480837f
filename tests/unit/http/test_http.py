import json
from typing import Any

import azure.functions as func
import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError

from durable_retry.base.answers import Answer, Page
from durable_retry.base.errors import CircuitOpenError, OverloadedError, TaskHubUnavailableError
from durable_retry.base.validation import InvalidInputError, Problem, Strict
from durable_retry.http.answers import BodyTooLargeError, ConflictError, NotFoundError, etag_of
from durable_retry.http.parameters import LIMIT
from durable_retry.http.routes import (
    ACCEPTED,
    AWAY,
    CONFLICT,
    OK,
    Query,
    RouteAnswer,
    Routes,
    page,
    read_body,
    shown,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.routing import table

DONE = (RouteAnswer(ACCEPTED, "Done."),)


class Order(Strict):
    amount: int = 0


class WornOutError(Exception):
    pass


def plain(document: object) -> func.HttpResponse:
    return func.HttpResponse(json.dumps(document, default=str), mimetype="application/json")


def a_request(body: bytes = b"", **sent: str) -> func.HttpRequest:
    return func.HttpRequest("POST", "http://localhost/api/orders/o-1", params=sent, body=body)


async def answer_to(request: func.HttpRequest, function: Any, **declared: Any) -> tuple[int, Any]:
    routes = Routes("orders", {WornOutError: lambda _: ConflictError("The order is worn out.")})
    registered: Any = routes.post("orders/{order_id}", answers=DONE, **declared)(function)
    answer = await registered(request, TaskHub("hub"), {"order_id": "o-1"})
    return answer.status_code, json.loads(answer.get_body())


async def test_a_function_gets_what_it_takes_by_name() -> None:
    async def order(query: Query, order_id: str, body: Order) -> func.HttpResponse:
        return plain([query[LIMIT], order_id, body.amount])

    status, body = await answer_to(
        a_request(b'{"amount": 3}', limit="7"), order, parameters=(LIMIT,), body=Order
    )
    assert (status, body) == (200, [7, "o-1", 3])


async def test_a_body_that_is_not_required_may_be_left_out() -> None:
    async def order(body: Order) -> func.HttpResponse:
        return plain(body.amount)

    assert await answer_to(a_request(b" "), order, body=Order, body_required=False) == (200, 0)
    assert (await answer_to(a_request(b" "), order, body=Order))[0] == 400


async def test_an_unknown_query_parameter_is_refused_before_the_function_is_called() -> None:
    async def order() -> func.HttpResponse:
        raise AssertionError

    status, body = await answer_to(a_request(colour="red"), order)
    assert (status, body["errors"][0]["pointer"]) == (400, "/colour")


@pytest.mark.parametrize("route", table(), ids=lambda route: route.function)
def test_every_route_documents_that_it_refuses_unknown_query_parameters(route: Any) -> None:
    assert 400 in [status.value for status in route.problems]


@pytest.mark.parametrize(
    ("path", "method", "more", "statuses"),
    [
        ("orders", "get", {}, [503]),
        ("orders/{order_id}", "get", {}, [404, 503]),
        ("orders/{order_id}", "post", {}, [404, 409, 503]),
        ("orders/{order_id}", "delete", {}, [404, 409, 503]),
        ("orders/{order_id}", "post", {"only_reads": True}, [404, 503]),
        ("orders/{order_id}", "get", {"errors": ()}, []),
    ],
)
def test_a_route_documents_what_most_refuse_unless_it_says_its_own(
    path: str, method: str, more: dict[str, Any], statuses: list[int]
) -> None:
    async def order() -> func.HttpResponse:
        raise AssertionError

    routes = Routes("orders")
    getattr(routes, method)(path, answers=DONE, **more)(order)
    assert [
        status.value for status in routes.table[0].problems if status.value not in {400, 401, 403}
    ] == statuses


@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (InvalidInputError([Problem("", "wrong")]), 400, "/problems/invalid-input"),
        (NotFoundError("order of this id"), 404, "about:blank"),
        (ConflictError("Too late."), 409, "/problems/wrong-state"),
        (WornOutError(), 409, "/problems/wrong-state"),
        (TaskHubUnavailableError("away"), 503, "/problems/task-hub-unavailable"),
        (CircuitOpenError("payments is not called", 7), 503, "/problems/circuit-open"),
        (OverloadedError("500 submissions are under way"), 503, "/problems/overloaded"),
        (ServiceRequestError("away"), 503, "/problems/storage-unavailable"),
    ],
)
async def test_an_exception_becomes_a_problem_document(error: Exception, status: int, type_: str) -> None:
    async def order() -> func.HttpResponse:
        raise error

    answered, body = await answer_to(a_request(), order, errors=(CONFLICT, AWAY))
    assert (answered, body["status"], body["type"]) == (status, status, type_)


async def test_a_defect_is_no_problem_document() -> None:
    refused = HttpResponseError("the table name is invalid")
    refused.status_code = 400
    for defect in (ZeroDivisionError(), refused):
        with pytest.raises(type(defect)):
            await answer_to(a_request(), _raising(defect))


def _raising(defect: Exception) -> Any:
    async def order() -> func.HttpResponse:
        raise defect

    return order


def asked(**headers: str) -> func.HttpRequest:
    return func.HttpRequest("GET", "http://localhost/api/orders", headers=headers, body=b"")


async def test_a_document_that_the_caller_has_is_not_sent_again() -> None:
    routes = Routes("orders")
    amounts = [3, 3, 4]

    async def orders() -> func.HttpResponse:
        return plain({"amount": amounts.pop(0)})

    registered: Any = routes.get("orders", answers=(RouteAnswer(OK, "All."),))(orders)
    first = await registered(asked(), TaskHub("hub"), {})
    again = await registered(asked(**{"If-None-Match": first.headers["ETag"]}), TaskHub("hub"), {})
    changed = await registered(asked(**{"If-None-Match": first.headers["ETag"]}), TaskHub("hub"), {})
    assert (again.status_code, again.get_body(), again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    assert (changed.status_code, changed.headers["ETag"] != first.headers["ETag"]) == (200, True)


async def test_what_changes_with_the_time_of_asking_alone_is_not_news() -> None:
    def document(at: int, amount: int) -> dict[str, Any]:
        return {"counted_at": at, "amount": amount, "parts": [{"from": at, "amount": amount}]}

    def tag(at: int, amount: int) -> str:
        return etag_of(document(at, amount), {"counted_at", "from"})

    assert tag(1, 5) == tag(2, 5) != tag(2, 6)
    assert etag_of(document(1, 5)) != etag_of(document(2, 5))


async def test_a_refusal_has_no_version() -> None:
    routes = Routes("orders")
    registered: Any = routes.get("orders", answers=(RouteAnswer(OK, "All."),))(
        _raising(NotFoundError("order"))
    )
    answer = await registered(asked(**{"If-None-Match": "*"}), TaskHub("hub"), {})
    assert (answer.status_code, "ETag" in answer.headers) == (404, False)


def test_a_parameter_that_no_route_gives_is_refused_when_it_is_declared() -> None:
    async def order(colour: str) -> func.HttpResponse:
        return plain(colour)

    with pytest.raises(TypeError, match="colour"):
        Routes("orders").get("orders", answers=DONE)(order)


class Amount(Answer):
    amount: int
    counted_at: int = 0


@pytest.mark.parametrize(("more", "status"), [({}, 200), ({"answers": DONE}, 202)])
async def test_a_route_answers_with_the_document_that_its_function_returns(
    more: dict[str, Any], status: int
) -> None:
    routes = Routes("orders")

    async def one() -> Amount:
        return Amount(amount=3)

    registered: Any = routes.get("orders", **more)(one)
    answer = await registered(asked(), TaskHub("hub"), {})
    assert (answer.status_code, json.loads(answer.get_body())) == (status, {"amount": 3, "counted_at": 0})


def test_what_a_function_returns_is_described_as_its_answer_unless_the_route_declares_another() -> None:
    routes = Routes("orders")

    async def one() -> Amount:
        raise NotImplementedError

    async def many() -> Page[Amount]:
        raise NotImplementedError

    async def file() -> func.HttpResponse:
        raise NotImplementedError

    routes.get("orders/{order_id}")(one)
    routes.get("orders")(many)
    routes.post("orders", answers=DONE)(one)
    assert [route.answers for route in routes.table] == [shown(Amount), page(Page[Amount]), DONE]
    with pytest.raises(TypeError, match="must declare its answers"):
        routes.get("orders/file")(file)


async def test_a_route_names_the_members_that_are_no_news_and_may_change() -> None:
    routes = Routes("orders")
    seen = [Amount(amount=3, counted_at=1), Amount(amount=3, counted_at=2), Amount(amount=4, counted_at=2)]

    async def one() -> Amount:
        return seen.pop(0)

    registered: Any = routes.get("orders", moving=frozenset({"counted_at"}))(one)
    tags = [(await registered(asked(), TaskHub("hub"), {})).headers["ETag"] for _ in range(3)]
    assert tags[0] == tags[1] != tags[2]


def test_the_first_line_of_the_docstring_is_the_summary() -> None:
    assert {route.function: route.summary for route in table()}["submit_operation"] == "Submit an operation"
    assert not [route.function for route in table() if not route.summary]


def read_as_it_is(request: func.HttpRequest) -> Any:
    return read_body(request, lambda document: document)


@pytest.mark.shows("C8")
def test_a_body_at_the_limit_is_read_and_one_over_it_is_not() -> None:
    at_limit = b'"' + b"x" * (64 * 1024 - 2) + b'"'
    assert len(read_as_it_is(a_request(at_limit))) == 64 * 1024 - 2
    with pytest.raises(BodyTooLargeError, match="65536"):
        read_as_it_is(a_request(at_limit + b" "))


@pytest.mark.parametrize("body", [b"", b"nope", b"\xff", b"[" * 5_000, b"NaN"])
def test_what_is_not_json_is_reported_as_such(body: bytes) -> None:
    with pytest.raises(InvalidInputError):
        read_as_it_is(a_request(body))
