"""Who calls, and what a reader may not do."""

import base64
import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import azure.functions as func
import pytest

from durable_retry import routing
from durable_retry.http.answers import UnauthorizedError
from durable_retry.http.callers import Caller, caller_of, key_of
from durable_retry.http.routes import Route
from durable_retry.hub.task_hub import TaskHub
from durable_retry.settings.callers import CallerKey, CallerSettings, Role, caller_settings
from durable_retry.settings.group import SettingsError

HASH = sha256(b"a key").hexdigest()
AUTH = {"WEBSITE_AUTH_ENABLED": "True"}


def test_without_settings_nobody_is_known() -> None:
    assert CallerSettings.read({}) == CallerSettings()
    assert caller_settings() is None


def test_every_setting_counts() -> None:
    settings = CallerSettings.read(
        AUTH
        | {
            "OPERATOR_ROLES": "ops, groups=42",
            "READER_ROLES": "support",
            "CALLER_KEYS": f"pager=reader:{HASH}",
        }
    )
    assert settings == CallerSettings(
        website_auth_enabled="True",
        operator_roles=frozenset({"ops", "groups=42"}),
        reader_roles=frozenset({"support"}),
        caller_keys={HASH: CallerKey("pager", Role.READER)},
    )


@pytest.mark.parametrize(
    ("operators", "readers", "claims", "role"),
    [
        ("", "", set(), Role.OPERATOR),
        ("ops", "", {"ops"}, Role.OPERATOR),
        ("ops", "", {"support"}, Role.READER),
        ("ops", "support", {"support"}, Role.READER),
        ("ops", "support", {"ops", "support"}, Role.OPERATOR),
        ("ops", "support", set(), Role.NONE),
    ],
)
def test_the_role_of_a_person(operators: str, readers: str, claims: set[str], role: Role) -> None:
    settings = CallerSettings.read(AUTH | {"OPERATOR_ROLES": operators, "READER_ROLES": readers})
    assert settings.role_of(frozenset(claims)) is role


@pytest.mark.parametrize(
    ("environ", "name", "what"),
    [
        ({"OPERATOR_ROLES": "ops"}, "OPERATOR_ROLES", "App Service authentication only"),
        (AUTH | {"READER_ROLES": "support"}, "OPERATOR_ROLES", "nobody could change anything"),
        ({"CALLER_KEYS": "pager=reader:the-key-itself"}, "CALLER_KEYS", "entry 1 must be name=ROLE:SHA256"),
        ({"CALLER_KEYS": f"pager=owner:{HASH}"}, "CALLER_KEYS", "entry 1"),
        ({"CALLER_KEYS": f"a=reader:{HASH} b=operator:{HASH}"}, "CALLER_KEYS", "entry 2 has the key of a"),
    ],
)
def test_a_mistake_stops_the_start(environ: dict[str, str], name: str, what: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        CallerSettings.read(environ)
    (problem,) = refusal.value.problems
    assert problem.pointer == name
    assert what in problem.detail
    assert "the-key-itself" not in problem.detail


KEY = "a-function-key"
KEYS = f"pager=reader:{sha256(KEY.encode()).hexdigest()}"


@pytest.fixture(autouse=True)
def fresh_settings() -> Iterator[None]:
    caller_settings.cache_clear()
    yield
    caller_settings.cache_clear()


def settings_of(monkeypatch: pytest.MonkeyPatch, **environ: str) -> CallerSettings:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    caller_settings.cache_clear()
    settings = caller_settings()
    assert settings is not None
    return settings


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
    settings = settings_of(monkeypatch, WEBSITE_AUTH_ENABLED="True")
    assert caller_of(a_request(signed_in()), settings) == Caller("ada@example.com", Role.OPERATOR)
    assert caller_of(a_request({}), settings) == Caller(None, Role.OPERATOR)


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
        (signed_in() | {"X-MS-CLIENT-PRINCIPAL": principal(("kind", "ops"), role_typ="kind")}, Role.OPERATOR),
    ],
)
def test_roles_come_from_claims(monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], role: Role) -> None:
    settings = settings_of(monkeypatch, WEBSITE_AUTH_ENABLED="True", OPERATOR_ROLES="ops, department=it")
    assert caller_of(a_request(headers), settings).role is role


def test_a_key_has_a_name_and_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(monkeypatch, CALLER_KEYS=KEYS)
    assert caller_of(a_request({"x-functions-key": KEY}), settings) == Caller("pager", Role.READER)
    assert caller_of(a_request({}, {"code": KEY}), settings) == Caller("pager", Role.READER)


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
    settings = settings_of(monkeypatch, WEBSITE_AUTH_ENABLED="True", CALLER_KEYS=KEYS)
    with pytest.raises(UnauthorizedError, match=detail):
        caller_of(a_request(headers, params), settings)


def test_a_person_needs_a_listed_key_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(monkeypatch, WEBSITE_AUTH_ENABLED="True", CALLER_KEYS=KEYS)
    assert caller_of(a_request(signed_in()), settings) == Caller("ada@example.com", Role.OPERATOR)
    with pytest.raises(UnauthorizedError):
        caller_of(a_request(signed_in() | {"x-functions-key": "another"}), settings)


@pytest.mark.parametrize(
    ("headers", "params"),
    [
        ({"x-functions-key": KEY}, {}),
        ({}, {"code": KEY}),
        ({}, {"Code": KEY}),  # as the host
        ({"x-functions-key": KEY}, {"code": KEY}),
    ],
)
def test_a_key_is_read_wherever_the_host_reads_it(headers: dict[str, str], params: dict[str, str]) -> None:
    assert key_of(a_request(headers, params)) == KEY


@pytest.mark.parametrize(
    ("headers", "params"),
    [
        # The host joins the values of a name that was sent twice.
        ({"x-functions-key": f"{KEY},x"}, {}),
        ({"x-functions-key": f"{KEY},{KEY}"}, {}),
        ({}, {"code": f"x,{KEY}"}),
        ({"x-functions-key": KEY}, {"code": "x"}),
        ({"x-functions-key": ""}, {"code": KEY}),
        ({}, {"code": KEY, "CODE": KEY}),
    ],
)
@pytest.mark.parametrize("environ", [{}, {"CALLER_KEYS": KEYS}, AUTH])
async def test_several_keys_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    params: dict[str, str],
    environ: dict[str, str],
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    route = route_of("archive_dead_letter")
    answer = await route.respond(a_request(headers, params), TaskHub("{}"), {"dead_letter_id": "x"})
    document = json.loads(answer.get_body())
    assert (answer.status_code, answer.mimetype) == (401, "application/problem+json")
    assert document["type"] == "/problems/unauthorized"
    assert "more than one function key" in document["detail"]


def test_a_person_with_a_key_that_reads_only_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(monkeypatch, WEBSITE_AUTH_ENABLED="True", CALLER_KEYS=KEYS)
    caller = caller_of(a_request(signed_in() | {"x-functions-key": KEY}), settings)
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
    assert person.within(key) is both
    assert key.within(person) is both


READS_WITHOUT_GET = {"preview_policy"}
SUBMIT = {"submit_operation", "enqueue_operation", "submit_batch", "submit_saga"}
SHOWS_TO_OPERATORS_ONLY = {"list_histories"}
FOLLOW = {"get_operation", "get_batch", "get_saga"}


@pytest.mark.parametrize("route", routing.table(), ids=lambda route: route.function)
def test_only_get_and_previews_need_no_operator(route: Route) -> None:
    reads = route.anonymous or route.method == "GET" or route.function in READS_WITHOUT_GET
    assert (Role.READER in route.roles) is (reads and route.function not in SHOWS_TO_OPERATORS_ONLY)
    assert Role.OPERATOR in route.roles
    assert (Role.NONE in route.roles) is route.anonymous
    assert (403 in [status.value for status in route.problems]) is not route.anonymous


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
    settings_of(monkeypatch, WEBSITE_AUTH_ENABLED="True", OPERATOR_ROLES="ops", READER_ROLES="support")
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
    settings_of(monkeypatch, CALLER_KEYS=KEYS.replace("reader", "caller"))
    status, _ = await answer_of(route, {"x-functions-key": KEY})
    assert status == (400 if route.anonymous or route.function in SUBMIT | FOLLOW else 403)
