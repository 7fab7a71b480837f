import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from onebox.host_json import Http
from onebox.http.functions import Admission, Endpoint, HttpFunctions, endpoints, shadowed
from onebox.http.routes import RouteTemplate, split_path
from onebox.worker.functions import Binding, Catalogue, Function


def function(name: str, route: str, *methods: str) -> Function:
    properties = {"route": route, "methods": list(methods)}
    trigger = Binding("req", "httpTrigger", is_output=False, properties=properties)
    return Function(name, name, trigger, (trigger,))


def functions_of(found: Sequence[Endpoint]) -> HttpFunctions:
    return HttpFunctions(found, *3 * (cast("Any", None),), Http())


def shadows(*functions: Function) -> list[tuple[str, str]]:
    found = shadowed(endpoints(Catalogue(functions), Http()))
    return [(hidden.function.name, by.function.name) for hidden, by in found]


@pytest.mark.parametrize(
    "first",
    ["items/{id}", "items/{*rest}", "{kind}/{id}", "items/{id:minlength(3)}", "items/summary", "{*all}"],
)
def test_a_route_is_shadowed_by_a_match_of_a_function_whose_name_comes_first(first: str) -> None:
    assert shadows(function("b", "items/summary", "GET"), function("A", first)) == [("b", "A")]


@pytest.mark.parametrize(
    ("first", "methods"),
    [
        ("items/{id:int}", ["GET"]),
        (r"items/{id:regex(^(?!summary$).+$)}", ["GET"]),
        ("items", ["GET"]),
        ("items/{id}/more", ["GET"]),
        ("items/{id}", ["POST"]),
    ],
)
def test_a_route_that_does_not_match_or_takes_other_methods_shadows_nothing(
    first: str, methods: list[str]
) -> None:
    assert shadows(function("b", "items/summary", "GET"), function("a", first, *methods)) == []


def test_a_route_of_a_later_name_shadows_nothing_and_an_underscore_follows_the_letters() -> None:
    assert shadows(function("a", "items/summary", "GET"), function("b", "items/{id}")) == []
    assert shadows(function("getx", "items/summary", "GET"), function("get_", "items/{id}")) == []


@pytest.mark.parametrize(
    ("names", "answers"), [(("a", "b"), "a"), (("B", "a"), "a"), (("get_", "getX"), "getX")]
)
def test_the_first_by_its_name_takes_a_request_however_exact_another_is(
    names: tuple[str, str], answers: str
) -> None:
    found = endpoints(
        Catalogue([function(names[0], "items/{id}"), function(names[1], "items/{*rest}")]), Http()
    )
    (taken, *_) = (each for each in found if each.template.match(["api", "items", "7"]) is not None)
    assert taken.function.name == answers


@pytest.mark.shows("H9")
def test_the_start_warns_of_a_shadowed_route_and_names_both_functions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoints(Catalogue([function("sum", "items/summary", "GET"), function("one", "items/{id}")]), Http())
    assert "sum (api/items/summary) is shadowed by one (api/items/{id})" in caplog.text


def admission(*, outstanding: int = -1, concurrent: int = -1) -> Admission:
    return Admission(Http(maxOutstandingRequests=outstanding, maxConcurrentRequests=concurrent))


async def test_without_limits_nothing_is_refused_and_nothing_waits() -> None:
    free = admission()
    async with free, free:
        assert not free.is_full


async def test_one_over_the_limit_is_refused_until_another_is_answered() -> None:
    limited = admission(outstanding=2)
    async with limited:
        async with limited:
            assert limited.is_full
        assert not limited.is_full


async def test_what_may_not_run_yet_waits_and_counts_as_outstanding() -> None:
    limited = admission(outstanding=2, concurrent=1)
    entered = asyncio.Event()

    async def second() -> None:
        async with limited:
            entered.set()

    async with limited:
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0)
        assert limited.is_full
        assert not entered.is_set()
    await waiting
    assert entered.is_set()
    assert not limited.is_full


async def test_a_request_that_gives_up_waiting_counts_no_more() -> None:
    limited = admission(outstanding=2, concurrent=1)
    async with limited:
        waiting = asyncio.create_task(limited.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not limited.is_full


ROUTES = (
    "items",
    "items/{id}",
    "Orders/{id}",
    "{kind}/{id}",
    "{*all}",
    "a%62c/{id}",
    "caf\u00e9/{id}",
    "v{n:int}/x",
)


@pytest.mark.parametrize(
    "path",
    [
        *("/api/items", "/API/ITEMS/7", "/api/orders/7", "/api/it%65ms/7", "/api/abc/7", "/api/a%62c/7"),
        *(
            "/api/caf%C3%A9/7",
            "/api/CAF\u00c9/7",
            "/api/v1/x",
            "/api/vx/x",
            "/api/other/7",
            "/api/a/b/c",
            "/api",
            "/",
        ),
        *("/other/items", "/api/item\u017f/7", "/api/\u212aind/7"),
    ],
)
def test_the_first_words_of_a_path_leave_out_no_endpoint_that_matches(path: str) -> None:
    found = endpoints(Catalogue([function(f"f{n}", route, "GET") for n, route in enumerate(ROUTES)]), Http())
    matching = [each for each in found if each.template.match(split_path(path)) is not None]
    taken = functions_of(found).find("GET", path)
    assert (None if taken is None else taken[0]) is next(iter(matching), None)


def test_endpoints_of_other_words_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found = endpoints(Catalogue([function(f"f{n}", f"things{n}/{{id}}", "GET") for n in range(50)]), Http())
    tried: list[str] = []
    match = RouteTemplate.match

    def note(template: RouteTemplate, parts: Sequence[str]) -> dict[str, str] | None:
        tried.append(template.text)
        return match(template, parts)

    monkeypatch.setattr(RouteTemplate, "match", note)
    assert functions_of(found).find("GET", "/api/Things49/7") is not None
    assert tried == ["api/things49/{id}"]
