import base64
import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import azure.functions as func
import pytest

from durable_retry import routing
from durable_retry.base.names import Role
from durable_retry.features.callers.reading import caller_reader, role_within
from durable_retry.http.answers import UnauthorizedError
from durable_retry.http.callers import Caller, caller_of
from durable_retry.http.routes import Route
from durable_retry.hub.task_hub import TaskHub

KEY = "a-function-key"
KEYS = f"pager=reader:{sha256(KEY.encode()).hexdigest()}"


@pytest.fixture(autouse=True)
def fresh_settings() -> Iterator[None]:
    caller_reader.cache_clear()
    yield
    caller_reader.cache_clear()


def set_up(monkeypatch: pytest.MonkeyPatch, **environ: str) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def principal(*claims: tuple[str, str], role_typ: str = "roles") -> str:
    document = {
        "auth_typ": "aad",
        "claims": [{"typ": typ, "val": val} for typ, val in claims],
        "role_typ": role_typ,
    }
    return base64.b64encode(json.dumps(document).encode()).decode()


def signed_in(*claims: tuple[str, str], **more: str) -> dict[str, str]:
    names = {"X-MS-CLIENT-PRINCIPAL-NAME": "ada@example.com", "X-MS-CLIENT-PRINCIPAL-ID": "1"}
    return names | {"X-MS-CLIENT-PRINCIPAL": principal(*claims)} | more


def a_request(
    headers: Mapping[str, str], params: Mapping[str, str] | None = None, method: str = "POST"
) -> func.HttpRequest:
    return func.HttpRequest(
        method, "http://localhost/api/x", headers=dict(headers), params=dict(params or {}), body=b""
    )


def test_a_person_is_known_where_the_platform_authenticates(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch, WEBSITE_AUTH_ENABLED="True")
    assert caller_of(a_request(signed_in())) == Caller("ada@example.com", Role.OPERATOR)
    assert caller_of(a_request({})) == Caller(None, Role.OPERATOR)


@pytest.mark.parametrize(
    ("headers", "role"),
    [
        (signed_in(("roles", "ops")), Role.OPERATOR),
        (signed_in(("groups", "ops")), Role.OPERATOR),
        (signed_in(("department", "ops")), Role.READER),
        (signed_in(("department", "it")), Role.OPERATOR),
        (signed_in(), Role.READER),
        (signed_in() | {"X-MS-CLIENT-PRINCIPAL": "no base64!"}, Role.READER),
        (signed_in() | {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(b"[]").decode()}, Role.READER),
        (signed_in() | {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(b'{"claims":7}').decode()}, Role.READER),
        (signed_in() | {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(b'{"claims":[7]}').decode()}, Role.READER),
        (signed_in() | {"X-MS-CLIENT-PRINCIPAL": principal(("kind", "ops"), role_typ="kind")}, Role.OPERATOR),
    ],
)
def test_roles_come_from_claims(monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], role: Role) -> None:
    set_up(monkeypatch, WEBSITE_AUTH_ENABLED="True", OPERATOR_ROLES="ops, department=it")
    assert caller_of(a_request(headers)).role is role


def test_a_key_has_a_name_and_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch, CALLER_KEYS=KEYS)
    assert caller_of(a_request({"x-functions-key": KEY})) == Caller("pager", Role.READER)
    assert caller_of(a_request({}, {"code": KEY})) == Caller("pager", Role.READER)


@pytest.mark.parametrize(
    ("headers", "params", "detail"),
    [
        ({}, {}, "has no function key"),
        ({"x-functions-key": ""}, {}, "has no function key"),
        ({"x-functions-key": "another"}, {}, "is not listed in CALLER_KEYS"),
        ({}, {"code": "another"}, "is not listed in CALLER_KEYS"),
    ],
)
def test_where_keys_are_listed_any_other_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], params: dict[str, str], detail: str
) -> None:
    set_up(monkeypatch, WEBSITE_AUTH_ENABLED="True", CALLER_KEYS=KEYS)
    with pytest.raises(UnauthorizedError, match=detail):
        caller_of(a_request(headers, params))


def test_a_person_needs_a_listed_key_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch, WEBSITE_AUTH_ENABLED="True", CALLER_KEYS=KEYS)
    assert caller_of(a_request(signed_in())) == Caller("ada@example.com", Role.OPERATOR)
    with pytest.raises(UnauthorizedError):
        caller_of(a_request(signed_in() | {"x-functions-key": "another"}))


@pytest.mark.parametrize("environ", [{"CALLER_KEYS": KEYS}, {"WEBSITE_AUTH_ENABLED": "True"}])
async def test_several_keys_are_refused_whoever_may_have_one_of_them(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    set_up(monkeypatch, **environ)
    with pytest.raises(UnauthorizedError, match="more than one function key"):
        caller_of(a_request({"x-functions-key": KEY}, {"code": "x"}))


def test_a_person_with_a_key_that_reads_only_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch, WEBSITE_AUTH_ENABLED="True", CALLER_KEYS=KEYS)
    caller = caller_of(a_request(signed_in() | {"x-functions-key": KEY}))
    assert caller == Caller("ada@example.com", Role.READER)


@pytest.mark.parametrize(
    ("person", "key", "both"),
    [
        (Role.OPERATOR, Role.CALLER, Role.CALLER),
        (Role.READER, Role.CALLER, Role.NONE),
        (Role.READER, Role.READER, Role.READER),
        (Role.NONE, Role.OPERATOR, Role.NONE),
    ],
)
def test_a_person_with_a_key_may_do_what_both_may(person: Role, key: Role, both: Role) -> None:
    assert role_within(person, key) is both
    assert role_within(key, person) is both


SUBMIT = {"submit_operation", "enqueue_operation", "submit_batch", "submit_saga"}
FOLLOW = {"get_operation", "get_batch", "get_saga"}


def route_of(function: str) -> Route:
    (route,) = (each for each in routing.table() if each.function == function)
    return route


async def answer_of(route: Route, headers: Mapping[str, str]) -> tuple[int, Any]:
    """Have a route answer, without the durable client."""
    request = func.HttpRequest(
        route.method,
        f"http://localhost/api/{route.path}",
        headers=dict(headers),
        params={"no-such-parameter": "1"},
        body=b"",
    )
    answer = await route.respond(request, TaskHub("{}"), dict.fromkeys(route.path_parameters, "x"))
    return answer.status_code, json.loads(answer.get_body())


@pytest.mark.parametrize("route", routing.table(), ids=lambda route: route.function)
async def test_a_reader_is_refused_on_every_route_that_changes(
    monkeypatch: pytest.MonkeyPatch, route: Route
) -> None:
    """The unknown parameter is refused with 400 by every route that lets the caller in."""
    set_up(monkeypatch, WEBSITE_AUTH_ENABLED="True", OPERATOR_ROLES="ops", READER_ROLES="support")
    as_reader = await answer_of(route, signed_in(("roles", "support")))
    assert as_reader[0] == (403 if route.changes or route.for_operators else 400)
    if route.changes:
        needed = "caller or operator" if route.function in SUBMIT else "operator"
        assert as_reader[1]["type"] == "/problems/forbidden"
        assert as_reader[1]["detail"] == f"This needs the role {needed}, and ada@example.com is a reader."
    assert (await answer_of(route, signed_in(("roles", "ops"))))[0] == 400
    stranger = await answer_of(route, signed_in())
    assert stranger[0] == (400 if route.anonymous else 403)


async def test_headers_of_a_person_mean_nothing_where_the_platform_does_not_authenticate() -> None:
    route = route_of("archive_dead_letter")
    headers = signed_in(("roles", "support")) | {"x-functions-key": KEY}
    assert (await answer_of(route, headers))[0] == 400  # and not 403


@pytest.mark.parametrize("route", routing.table(), ids=lambda route: route.function)
async def test_a_caller_submits_and_follows_by_id_and_is_refused_everywhere_else(
    monkeypatch: pytest.MonkeyPatch, route: Route
) -> None:
    set_up(monkeypatch, CALLER_KEYS=KEYS.replace("reader", "caller"))
    status, _ = await answer_of(route, {"x-functions-key": KEY})
    assert status == (400 if route.anonymous or route.function in SUBMIT | FOLLOW else 403)
