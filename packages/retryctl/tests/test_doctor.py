"""The command `doctor` on answers that are made up here; `tests/e2e/test_retryctl.py` runs it on the app."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from retryctl import clock, doctor
from tests.support.retryctl import Responder, Run

NAMES = ("storage", "queues", "packages", "start", "entity", "timer", "activity", "index", "stuck")


def app(
    states: Mapping[str, tuple[str, str | None]] | None = None,
    *,
    version: str = "4.1038.300.1",
    refusal: httpx.Response | None = None,
    waiting: Iterable[tuple[str, str, str, str | None]] = (),
    **more: Any,
) -> Responder:
    """An app whose parts work, but for those that are given with a state and a detail.

    Args:
        waiting: Its operations, and `more` of each of them, as in `operations`.
    """

    known = states or {}

    def answer(request: httpx.Request) -> httpx.Response:
        match request.method, request.url.path:
            case "GET", "/admin/host/status":
                if request.headers.get("x-functions-key") != "master":
                    return httpx.Response(401)
                return httpx.Response(200, json={"version": version, "state": "Running"})
            case "POST", "/api/diagnoses":
                return refusal or httpx.Response(202, json={"diagnosis_id": "diagnosis-1"})
            case "GET", "/api/dependencies" | "/api/handlers" | "/api/operations":
                return operations(*waiting, **more)(request)
            case _:
                parts = [
                    dict(
                        zip(("name", "state", "detail"), (name, *known.get(name, ("ok", None))), strict=True)
                    )
                    for name in NAMES
                ]
                document = {
                    "diagnosis_id": "diagnosis-1",
                    "role": "operator",
                    "caller": "ann",
                    "parts": parts,
                }
                return httpx.Response(200, json=document)

    return answer


def run(answer: Responder, *argv: str) -> tuple[int, str]:
    run = Run(answer, "doctor", "http://app.test", *argv)
    return run.code, run.out + run.err


def lines(text: str) -> list[list[str]]:
    return [line.split(maxsplit=2) for line in text.splitlines()]


def test_every_part_has_a_line() -> None:
    code, text = run(app(), "--master-key", "master")
    assert code == 0
    assert [line[0] for line in lines(text)] == ["host", *NAMES, "needed", "roles", "every"]
    assert lines(text)[0] == ["host", "ok", "version 4.1038.300.1"]
    assert lines(text)[-2] == ["roles", "ok", "operator, as ann"]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_part_that_fails_ends_it_with_what_to_do(name: str) -> None:
    code, text = run(app({name: ("failed", "it said no")}))
    assert code == 1
    assert lines(text)[-2] == [name, "FAILED", "it said no"]
    assert text.splitlines()[-1] == f"what to do: {doctor.REMEDIES[name]}"


@pytest.mark.parametrize("name", ["start", "entity", "timer", "activity", "index", "stuck"])
def test_a_part_that_is_not_reached_in_its_time_has_failed(name: str) -> None:
    code, text = run(app({name: ("waiting", None)}), "--part-seconds", "5")
    assert code == 1
    assert lines(text)[-2] == [name, "FAILED", "not reached within 5 s"]


def test_an_entity_that_does_not_answer_leads_to_the_reorder_window() -> None:
    _, text = run(app({"entity": ("waiting", None)}))
    assert '"entityMessageReorderWindowInMinutes": 0' in text


@pytest.mark.parametrize("version", ["4.1037.1", "4.900.0", "3.20.0"])
@pytest.mark.shows("H24")
def test_a_host_that_is_too_old_is_named_with_core_tools(version: str) -> None:
    code, text = run(app(version=version), "--master-key", "master")
    assert code == 1
    assert lines(text)[0] == ["host", "FAILED", f"version {version}, and 4.1038 is the least"]
    assert "Core Tools to 4.14 or later" in text


def test_a_host_that_is_in_error_has_failed_with_what_it_says() -> None:
    in_error = {"state": "Error", "errors": ["the store is full"], "versionDetails": "onebox 0.1.0"}
    code, text = run(lambda _: httpx.Response(200, json=in_error))
    assert code == 1
    assert lines(text)[0] == ["host", "FAILED", "it is in the state Error; the store is full"]


def test_without_the_master_key_the_version_is_not_known_and_the_others_are_looked_at() -> None:
    code, text = run(app())
    assert code == 0
    assert lines(text)[0][2] == "version not known: /admin takes the master key (--master-key)"


def test_a_host_that_does_not_answer_has_failed() -> None:
    def refused(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    code, text = run(refused)
    assert code == 1
    assert lines(text)[0][:2] == ["host", "FAILED"]
    assert "connection refused" in text
    assert text.splitlines()[-1] == f"what to do: {doctor.REMEDIES['host']}"


@pytest.mark.parametrize("content", [b"{}", b'{"items": [null]}', b'["ok"]', b"<html>"])
def test_what_is_no_functions_host_has_failed_as_the_host(content: bytes) -> None:
    code, text = run(lambda _: httpx.Response(200, content=content))
    assert code == 1
    assert lines(text)[0][:2] == ["host", "FAILED"]
    assert "this is not an answer of Durable Retry; is the URL right?" in text
    assert text.splitlines()[-1] == f"what to do: {doctor.REMEDIES['host']}"


AWAY = httpx.Response(503, json={"status": 503, "detail": "the task hub does not answer"})


def test_an_app_that_starts_no_diagnosis_and_has_no_health_fails_at_the_start() -> None:
    whole = app(refusal=AWAY)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500) if request.url.path == "/api/health" else whole(request)

    code, text = run(answer)
    assert code == 1
    assert lines(text)[-2][:2] == ["start", "FAILED"]
    assert "the task hub does not answer" in text


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_the_part_during_which_the_app_stops_answering_has_failed(answers: int) -> None:
    whole, left = app(), [answers]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/diagnoses/diagnosis-1":
            left[0] -= 1
        return AWAY if left[0] < 0 else whole(request)

    code, text = run(answer, "--part-seconds", "5")
    assert code == 1
    assert lines(text)[-2][:2] == [NAMES[answers], "FAILED"]
    assert "not reached within 5 s: " in text
    assert "the task hub does not answer" in text


def test_an_app_that_answers_again_in_time_goes_on() -> None:
    whole, number = app(), [0]

    def answer(request: httpx.Request) -> httpx.Response:
        number[0] += 1
        return AWAY if number[0] == 4 else whole(request)

    assert run(answer)[0] == 0


def test_a_reader_is_told_that_an_operator_is_needed() -> None:
    refused = httpx.Response(403, json={"status": 403, "title": "Forbidden", "detail": "ann is a reader"})
    code, text = run(app(refusal=refused))
    assert code == 1
    assert lines(text)[-2][:2] == ["roles", "FAILED"]


def test_json_is_one_document() -> None:
    code, text = run(app({"timer": ("failed", "late")}), "--json")
    document: dict[str, Any] = json.loads(text)
    assert (code, document["ok"], document["remedy"]) == (1, False, doctor.REMEDIES["timer"])
    assert document["parts"][-1] == {"name": "timer", "ok": False, "detail": "late"}


@pytest.fixture(autouse=True)
def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 11, 21, 12, 0, tzinfo=UTC))


def operations(
    *rows: tuple[str, str, str, str | None], given_up: Iterable[str] = (), **more: Any
) -> Responder:
    """An app with operations: their status, when they came and changed, and when they go on."""
    items = [
        {
            "operation_id": f"op-{number}",
            "status": status,
            "dependency": "payments",
            "key": "k",
            "created_at": created,
            "updated_at": updated,
            "next_attempt_at": due,
        }
        | more
        for number, (status, created, updated, due) in enumerate(rows)
    ]

    payments = {"name": "payments", "timeouts": {"attempt_seconds": 30}, "was": ["billing"]}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/dependencies"):
            return httpx.Response(200, json={"items": [payments]})
        if request.url.path.endswith("/handlers"):
            return httpx.Response(200, json={"items": [{"name": "ship", "dependency": "payments"}]})
        if request.url.path.endswith("/diagnoses/stuck"):
            since = {"since": "2026-11-21T11:50:00Z"}
            stuck = [
                since | {"instance_id": name, "orchestration": name.partition("-")[0]} for name in given_up
            ]
            return httpx.Response(200, json={"items": stuck})
        found = [one for one in items if one["status"] == request.url.params["status"]]
        return httpx.Response(200, json={"items": found, "next_cursor": None})

    return answer


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (("pending", "2026-11-21T11:57:00Z", "2026-11-21T11:57:00Z", None), "submit it again under its key"),
        (("running", "2026-11-21T11:00:00Z", "2026-11-21T11:57:00Z", None), "start the app's workers anew"),
        (
            ("waiting_retry", "2026-11-21T11:00:00Z", "2026-11-21T11:50:00Z", "2026-11-21T11:57:00Z"),
            "retry-now",
        ),
        (("paused", "2026-11-21T11:00:00Z", "2026-11-21T11:50:00Z", "2026-11-21T11:57:00Z"), "resume"),
    ],
)
def test_what_should_have_gone_on_is_listed_with_what_to_do(
    row: tuple[str, str, str, str | None], why: str
) -> None:
    code, text = run(operations(row), "--stuck", "--json")
    (item,) = json.loads(text)["items"]
    assert (code, item["instance_id"], item["status"]) == (1, "op-0", row[0])
    assert why in item["why"]


@pytest.mark.parametrize(
    "row",
    [
        ("pending", "2026-11-21T11:59:00Z", "2026-11-21T11:59:00Z", None),
        ("running", "2026-11-21T11:00:00Z", "2026-11-21T11:58:00Z", None),
        ("waiting_circuit", "2026-11-21T11:00:00Z", "2026-11-21T11:50:00Z", "2026-11-21T11:59:00Z"),
        ("paused", "2026-11-21T11:00:00Z", "2026-11-21T11:50:00Z", None),
        ("waiting_order", "2026-11-21T11:00:00Z", "2026-11-21T11:50:00Z", None),
    ],
)
def test_what_may_still_go_on_is_not_stuck(row: tuple[str, str, str, str | None]) -> None:
    assert run(operations(row), "--stuck") == (0, "nothing is stuck\n")


@pytest.mark.parametrize(
    ("status", "more", "late"),
    [
        ("running", {"handler": "ship"}, False),
        ("waiting_order", {"waits": [{"until": "2026-11-21T11:59:00Z"}]}, False),
        ("waiting_order", {"waits": [{"until": "2026-11-21T11:57:00Z"}]}, True),
    ],
)
def test_a_turn_is_due_when_the_app_itself_says(status: str, more: dict[str, Any], *, late: bool) -> None:
    row = (status, "2026-11-21T11:00:00Z", "2026-11-21T11:55:00Z", None)
    assert run(operations(row, **more), "--stuck")[0] == late


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"dependency": "removed"}, "dependency removed is not configured: put it back, or cancel"),
        ({"handler": "gone"}, "handler gone is not registered: deploy it again, or cancel"),
    ],
)
def test_what_waits_for_something_that_the_app_does_not_have_is_named_though_it_is_not_late(
    more: dict[str, Any], why: str
) -> None:
    row = ("waiting_retry", "2026-11-21T11:00:00Z", "2026-11-21T11:55:00Z", "2026-11-21T12:05:00Z")
    code, text = run(operations(row, **more), "--stuck", "--json")
    (item,) = json.loads(text)["items"]
    assert (code, item["why"]) == (1, why)


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"dependency": "removed"}, "dependency removed is not configured: put it back, or cancel"),
        ({"handler": "gone"}, "handler gone is not registered: deploy it again, or cancel"),
    ],
)
def test_what_operations_wait_for_and_the_app_does_not_have_is_a_part_that_fails(
    more: dict[str, Any], detail: str
) -> None:
    row = ("waiting_retry", "2026-11-21T11:00:00Z", "2026-11-21T11:55:00Z", "2026-11-21T12:05:00Z")
    code, text = run(app(waiting=[row, row], **more))
    assert code == 1
    assert lines(text)[-2] == ["needed", "FAILED", f"{detail} (operations: 2)"]
    assert text.splitlines()[-1] == f"what to do: {doctor.REMEDIES['needed']}"


@pytest.mark.parametrize("name", ["payments", "billing"])
def test_what_waits_for_a_dependency_by_its_name_or_an_earlier_one_misses_nothing(name: str) -> None:
    row = ("waiting_retry", "2026-11-21T11:00:00Z", "2026-11-21T11:55:00Z", "2026-11-21T12:05:00Z")
    code, text = run(app(waiting=[row], dependency=name))
    assert code == 0
    assert lines(text)[-3][:2] == ["needed", "ok"]


def test_what_no_nudge_moves_is_listed_once_whatever_it_is() -> None:
    row = ("running", "2026-11-21T11:00:00Z", "2026-11-21T11:57:00Z", None)
    code, text = run(operations(row, given_up=("op-0", "batch-1")), "--stuck", "--json")
    items = {each["instance_id"]: each for each in json.loads(text)["items"]}
    assert (code, sorted(items)) == (1, ["batch-1", "op-0"])
    assert {(name, each["status"]) for name, each in items.items()} == {
        ("op-0", "running"),
        ("batch-1", "batch"),
    }
    assert {each["why"] for each in items.values()} == {
        "it was woken and does not go on: restart the host; terminate it if it still does not"
    }
