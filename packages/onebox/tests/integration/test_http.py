import socket

import pytest

from tests.support.onebox.process import OneboxProcess


def test_a_request_reaches_its_function_with_method_url_route_query_headers_and_body(
    onebox: OneboxProcess,
) -> None:
    answer = onebox.client.post("/api/echo/a/b%2Fc?x=1&x=2&y=", content="héllo", headers={"X-Thing": "yes"})
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "method": "POST",
        "url": f"{onebox.url}/api/echo/a/b%2Fc?x=1&x=2&y=",
        "rest": "a/b/c",
        "query": {"x": "1,2", "y": ""},
        "header": "yes",
        "body": "héllo",
    }


@pytest.mark.shows("H10")
def test_constraints_leave_a_request_to_the_route_of_a_later_name(onebox: OneboxProcess) -> None:
    answers = [onebox.client.get(f"/api/items/{each}").text for each in ("special", "7", "seven")]
    assert answers == ["special", "number 7", "name seven"]


def test_every_cookie_has_a_header_of_its_own(onebox: OneboxProcess) -> None:
    answer = onebox.client.get("/api/cookies")
    assert answer.headers.get_list("set-cookie") == ["a=1; HttpOnly; Path=/", "b=2; Max-Age=60; SameSite=Lax"]
    assert answer.headers["x-thing"] == "yes"


def test_head_and_options_reach_a_function_that_takes_them(onebox: OneboxProcess) -> None:
    head, options = onebox.client.head("/api/verbs"), onebox.client.options("/api/verbs")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "4")
    assert (options.status_code, options.text) == (200, "OPTIONS")


@pytest.mark.shows("H10")
def test_an_unknown_path_and_a_method_that_the_function_does_not_take_are_404(onebox: OneboxProcess) -> None:
    nowhere = onebox.client.get("/api/nothing")
    assert (nowhere.status_code, nowhere.content) == (404, b"")
    assert onebox.client.delete("/api/verbs").status_code == 404
    assert onebox.client.head("/api/items/7").status_code == 404


def test_an_error_of_the_function_is_an_empty_500_and_logged_once(onebox: OneboxProcess) -> None:
    answer = onebox.client.get("/api/boom")
    assert (answer.status_code, answer.content) == (500, b"")
    onebox.until_logged(r"boom Failed in \d+ ms \(GET /api/boom\)")
    log = onebox.log()
    assert log.count("ValueError: a secret") == 1
    assert log.count("about to fail") == 1
    assert "native_invocation.py" not in log


def test_a_response_that_http_cannot_carry_is_500(onebox: OneboxProcess) -> None:
    assert onebox.client.get("/api/unsendable").status_code == 500
    onebox.until_logged("unsendable: its response cannot be sent: ")


@pytest.mark.parametrize("how", ["exit", "interrupt", "cancel", "close", "other", "mute"])
def test_a_function_that_leaves_fails_alone(onebox: OneboxProcess, how: str) -> None:
    assert onebox.client.get("/api/leaves", params={"how": how}).status_code == 500
    assert onebox.client.get("/api/leaves", params={"how": how, "later": ""}).text == "later"
    assert onebox.client.get("/api/empty").status_code == 204


def test_a_function_sees_its_callers_trace(onebox: OneboxProcess) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = onebox.client.get("/api/trace", headers={"traceparent": parent, "tracestate": "vendor=1"})
    assert answer.text == f"{parent} vendor=1"


@pytest.mark.parametrize(
    "path",
    [
        "/api/echo/x",
        "/admin/functions/greet",
        "/runtime/webhooks/durabletask/orchestrators/greet",
        "/runtime/webhooks/eventgrid?functionName=x",
    ],
)
def test_a_body_over_the_limit_is_413(onebox: OneboxProcess, path: str) -> None:
    address = onebox.client.base_url
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((address.host, address.port or 0), timeout=60) as connection:
        connection.sendall(f"{head}Content-Length: 104857601\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_the_root_says_that_the_app_runs(onebox: OneboxProcess) -> None:
    assert onebox.client.get("/").status_code == 200


def test_the_host_shows_its_status_and_its_functions(onebox: OneboxProcess) -> None:
    assert onebox.client.get("/admin/host/status").json()["state"] == "Running"
    functions = {each["name"]: each for each in onebox.client.get("/admin/functions").json()}
    assert functions["item_by_number"]["invoke_url_template"] == f"{onebox.url}/api/items/{{id:int}}"
    assert functions["work"]["config"]["bindings"][0]["queueName"] == "%WORK_QUEUE%"
    assert onebox.client.get("/admin/functions/WORK").json()["name"] == "work"
    assert onebox.client.get("/admin/functions/none").status_code == 404


def test_a_function_without_http_trigger_can_be_fired_by_hand(onebox: OneboxProcess) -> None:
    assert onebox.client.post("/admin/functions/work", json={"input": "by hand"}).status_code == 202
    onebox.until_logged(r"work Succeeded in \d+ ms \(fired by hand\)")
    assert onebox.client.post("/admin/functions/verbs", json={}).status_code == 400
    assert onebox.client.post("/admin/functions/greet", json={"input": ""}).status_code == 400
    assert onebox.client.post("/admin/functions/none", json={}).status_code == 404
    broken = onebox.client.post(
        "/admin/functions/work", content="{", headers={"Content-Type": "application/json"}
    )
    assert broken.status_code == 400


@pytest.mark.parametrize("body", ["{", "[]", "5", '{"metadata": 5}', "[" * 100_000])
def test_a_function_is_fired_by_an_object_only(onebox: OneboxProcess, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = onebox.client.post("/admin/functions/work", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith('the body must be JSON: {"input": ...}')


@pytest.mark.parametrize(
    "path", ["/admin/host/status", "/api/items/1", "/runtime/webhooks/durabletask/instances"]
)
@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
def test_a_web_page_of_elsewhere_is_refused_everywhere(
    onebox: OneboxProcess, path: str, header: dict[str, str]
) -> None:
    assert onebox.client.get(path, headers=header).status_code == 403


def answered(onebox: OneboxProcess, target: str, *headers: str) -> bytes:
    """Return the beginning of the answer to a request whose line has this target."""
    address = onebox.client.base_url
    head = "\r\n".join([f"GET {target} HTTP/1.1", *headers, "Connection: close", "", ""])
    with socket.create_connection((address.host, address.port or 0), timeout=60) as connection:
        connection.sendall(head.encode())
        return connection.recv(12)


@pytest.mark.parametrize(
    "named", ["evil.example", "localhost@evil.example", "localhost:1", "evil.example:80"]
)
def test_a_target_in_absolute_form_is_refused_where_it_names_another_host(
    onebox: OneboxProcess, named: str
) -> None:
    target = f"http://{named}/admin/host/status"
    assert answered(onebox, target, "Host: localhost") == b"HTTP/1.1 403"
    assert answered(onebox, target, f"Host: {named}") == (
        b"HTTP/1.1 403" if "evil" in named else b"HTTP/1.1 200"
    )


def test_a_target_in_absolute_form_is_answered_where_it_names_this_host(onebox: OneboxProcess) -> None:
    assert answered(onebox, "http://localhost/admin/host/status", "Host: localhost") == b"HTTP/1.1 200"
    assert answered(onebox, "//evil.example/", "Host: localhost") == b"HTTP/1.1 404"


def test_a_form_of_a_web_page_fires_nothing(onebox: OneboxProcess) -> None:
    fired = onebox.client.post("/admin/functions/work", data={"input": "x"})
    assert fired.status_code == 415


def test_the_status_shows_where_storage_is(onebox: OneboxProcess) -> None:
    shown = onebox.client.get("/admin/host/status").json()["storage"]
    assert shown == {"kind": "own", **onebox.ports.endpoints}
    assert f"Storage: queue {onebox.ports.endpoints['queue']}\n" in onebox.log()
