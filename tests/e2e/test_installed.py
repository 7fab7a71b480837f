"""The wheel in an environment of its own, in an app that has folders and functions of the same names."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.storage.queue import QueueClient

from durable_retry_client import AsyncClient, Client, OperationFailed
from scripts.processes import PLAIN_HTTP, ROOT, ServerProcess, eventually, free_port
from tests.support.app import SERVER
from tests.support.azurite import Storage, new_account
from tests.support.documents import Document
from tests.support.packages import link_packages
from tests.support.semantics import Calls
from tests.support.stub_server import StubServer
from tests.support.target import Target

pytestmark = pytest.mark.long

SHOP = Path(__file__).parent / "apps" / "shop"
FOLDERS = ("durable_retry", "orchestrators", "activities", "entities")
CONSOLE, CLIENT = "packages/console", "packages/client"
COMING_FROM = Document("docs/coming-from.md")
ADOPTING = Document("docs/adopting.md")
ENDED = {"succeeded", "dead_lettered", "cancelled"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `dist/`, in which the first command of the page about adopting put the wheels."""
    folder = tmp_path_factory.mktemp("built")
    (install, _, _) = ADOPTING.blocks("sh")
    make, _ = install.commands()
    env = {"ARGS": f"--dist {folder / 'dist'}", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    _typed(make, ROOT, env, Path(sys.executable).parent)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (wheel,) = (built / "dist").glob("durable_retry-*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an app's environment as the page makes it; what the wheels require is linked."""
    found, site = _environment(tmp_path_factory.mktemp("environment"))
    wheels = [Path(), *(ROOT / "packages" / name for name in ("onebox", "retryctl"))]
    projects = [tomllib.loads((folder / "pyproject.toml").read_text())["project"] for folder in wheels]
    link_packages(site, [need for project in projects for need in project["dependencies"]])
    pip = found.with_name("pip")
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --quiet --python "{found}" "$@"\n')
    pip.chmod(0o755)
    (install, _, _) = ADOPTING.blocks("sh")
    _, line = install.commands()
    _typed(line, built, {"PIP_NO_INDEX": "1"}, found.parent)
    return found


def _typed(command: str, folder: Path, env: dict[str, str], programs: Path) -> str:
    """Run a command as a reader types it, in a folder and an active environment; return what it wrote."""
    env = {"PATH": f"{programs}:/usr/bin:/bin", **env}
    shell = ["/bin/sh", "-e", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bare_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel alone, what it requires, and onebox."""
    found, site = _environment(tmp_path_factory.mktemp("bare"))
    _pip("--python", str(found), "install", "--no-deps", str(wheel))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    link_packages(site, [*project["dependencies"], "onebox"])
    return found


def _environment(folder: Path) -> tuple[Path, Path]:
    """Make an empty environment; return its interpreter and where its packages are."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python", next(folder.glob("lib/python*/site-packages"))


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(
        command, env={"PIP_NO_INDEX": "1", "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def served(python: Path, app: Path, folder: Path, *start: str, **env: str) -> Iterator[httpx.Client]:
    """An app on the onebox of the environment.

    Args:
        start: The command before its options; the default needs no installed program.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    # -P: the current folder, the repository's, is not searched for modules.
    command = start or (str(python), "-P", *SERVER, "start")
    server = ServerProcess(
        [*command, "--app", str(app), "--port", str(port), "--data", str(folder / "data")],
        ready_url=f"{url}/admin/host/status",
        log=folder / "onebox.log",
        env=env,
    )
    server.start()
    with httpx.Client(base_url=url, timeout=60, verify=PLAIN_HTTP) as client:
        yield client
    assert server.stop() == 0


@pytest.fixture(scope="module")
def shop(python: Path, tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[httpx.Client]:
    settings = {"WAREHOUSE_URL": target.url, "AzureWebJobsStorage": new_account().connection_string}
    with served(python, SHOP, tmp_path_factory.mktemp("shop"), **settings) as client:
        yield client


def submitted(shop: httpx.Client, document: dict[str, Any], to: str = "operations") -> str:
    answer = shop.post(f"/api/retries/{to}", json=document)
    assert answer.status_code == 202, answer.text
    status_url: str = answer.json()["status_url"]
    return status_url


def ended(shop: httpx.Client, status_url: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        answer = shop.get(status_url)
        document: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return document if document.get("status") in ENDED else None

    return eventually(look, f"{status_url} ends", within_seconds=90)


def a_call(key: str, path: str) -> dict[str, Any]:
    return {"dependency": "warehouse", "key": key, "request": {"method": "POST", "path": path}}


def test_the_wheel_takes_one_name_and_has_everything_but_the_apps_own_handlers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"durable_retry"}
    kept = {
        f"durable_retry/{file.relative_to(ROOT)}".removeprefix(
            "durable_retry/" if file.is_relative_to(ROOT / "durable_retry") else ""
        )
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and file.suffix not in {".pyc", ".md"}
    }
    # Pip alone made it, so it has no description of the API: the app makes one when it is asked for it.
    assert names == kept - {"durable_retry/activities/handlers.py"}


@pytest.mark.parametrize(
    ("folder", "name"), [(CONSOLE, "durable_retry_console"), (CLIENT, "durable_retry_client")]
)
def test_the_wheel_of_a_package_takes_one_name_and_has_all_of_its_folder(
    built: Path, folder: str, name: str
) -> None:
    (wheel,) = (built / "dist").glob(f"{name}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    kept = (file for file in (ROOT / folder / name).rglob("*") if file.is_file())
    assert names == {str(file.relative_to(ROOT / folder)) for file in kept if file.suffix != ".pyc"}


def test_it_asks_for_what_the_repository_installs(python: Path) -> None:
    _pip("--python", str(python), "check")


def test_the_shops_own_functions_go_on_under_their_names(shop: httpx.Client) -> None:
    assert shop.post("/api/operations", content="teapot").json() == "6 EUR"


def test_an_operation_is_retried_until_it_succeeds(shop: httpx.Client, target: Target, key: str) -> None:
    done = ended(shop, submitted(shop, a_call(key, "/fail/1")))
    assert (done["status"], done["attempt_count"]) == ("succeeded", 2)
    assert target.received(key)["count"] == 2


def test_a_handler_of_the_shop_runs(shop: httpx.Client, key: str) -> None:
    given = {"handler": "ship-order", "input": {"number": 7}, "key": key}
    done = ended(shop, submitted(shop, given))
    assert (done["status"], done["result"]) == ("succeeded", {"value": 7})


def test_a_message_of_the_queue_starts_an_operation(shop: httpx.Client, key: str) -> None:
    done = ended(shop, submitted(shop, a_call(key, "/fail/0"), "operations/enqueue"))
    assert (done["status"], done["source"]) == ("succeeded", "queue")


def test_a_dead_letter_is_replayed_with_an_edited_request(shop: httpx.Client, key: str) -> None:
    failed = ended(shop, submitted(shop, a_call(key, "/status/422")))
    assert (failed["status"], failed["dead_letter"]["category"]) == ("dead_lettered", "malformed")
    edited = {"request": {"method": "POST", "path": "/fail/0"}}
    answer = shop.post(f"/api/retries/dead-letters/{failed['dead_letter']['id']}/replay", json=edited)
    assert answer.status_code == 202, answer.text
    status_url = f"/api/retries/operations/{answer.json()['operation_id']}"
    eventually(
        lambda: shop.get(status_url).json()["status"] == "succeeded", "the replay succeeds", within_seconds=90
    )


def test_the_dashboard_and_the_description_are_below_the_prefix(shop: httpx.Client) -> None:
    assert "text/html" in shop.get("/api/retries/dashboard").headers["content-type"]
    assert shop.get("/api/retries/dashboard/views/overview.js").status_code == 200
    paths = json.loads(shop.get("/api/retries/openapi.json").text)["paths"]
    assert "/api/retries/operations/{operation_id}" in paths
    assert all(path.startswith("/api/retries/") for path in paths)


def test_an_orchestration_of_the_shop_calls_by_way_of_the_engine(
    shop: httpx.Client, target: Target, key: str
) -> None:
    order = {"request": {"path": "/fail/1"}, "key": key}
    assert shop.post("/api/checkouts/checkout", json=order).json() == {"charged": 200, "shipped": 7}
    assert target.received(key)["count"] == 2


def test_an_orchestration_of_the_shop_is_told_what_failed(shop: httpx.Client, key: str) -> None:
    told = shop.post("/api/checkouts/checkout", json={"request": {"path": "/status/422"}, "key": key}).json()
    assert told["failed"] == ["dead_lettered", "malformed", "RejectedByDependency"]
    letter = shop.get(f"/api/retries/dead-letters/{told['letter']}").json()
    assert (letter["key"], letter["status"]) == (key, "open")


def test_a_call_that_cannot_be_is_told_at_once(shop: httpx.Client) -> None:
    told = shop.post(
        "/api/checkouts/checkout", json={"request": {"path": "https://elsewhere.example/"}}
    ).json()
    assert told == {"failed": ["refused", "malformed", "ValidationFailed"], "letter": None}


def test_an_orchestrator_of_the_first_style_can_call_too(shop: httpx.Client) -> None:
    assert shop.post("/api/checkouts/first_style", json={}).json() == 200


def test_an_orchestration_that_continues_as_new_calls_anew_in_each_round(
    shop: httpx.Client, target: Target
) -> None:
    keys = shop.post("/api/checkouts/rounds", json=[]).json()
    assert [target.received(key)["count"] for key in set(keys)] == [Calls(1)] * 3


def test_a_function_of_the_shop_submits_and_waits_in_the_process(shop: httpx.Client, key: str) -> None:
    assert shop.post(f"/api/shipments/{key}").json() == [False, True, 7, False, "app"]


def test_everything_below_the_prefix_has_a_problem_body(shop: httpx.Client) -> None:
    for path in ("/api/retries/nope", "/api/retries/operations/op-1/nope"):
        answer = shop.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_program_submits_waits_and_replays_with_the_client(shop: httpx.Client, key: str) -> None:
    with Client(f"{shop.base_url}/api/retries") as client:
        first = client.submit(handler="ship-order", input={"number": 7}, key=key, wait_seconds=20)
        assert client.wait(first.operation_id, timeout_seconds=60).result == {"value": 7}
        assert client.submit(handler="ship-order", input={"number": 7}, key=key).is_replayed
        bad = client.submit(dependency="warehouse", request={"path": "/status/422"})
        with pytest.raises(OperationFailed) as failed:
            client.wait(bad.operation_id, timeout_seconds=60)
        letter = failed.value.dead_letter_id or ""
        again = client.replay(letter, request={"method": "POST", "path": "/fail/0"}, note="mended")
        eventually(lambda: client.get(again).status == "succeeded", "the replay succeeds", within_seconds=60)


async def test_a_program_awaits_with_the_client(shop: httpx.Client, key: str) -> None:
    async with AsyncClient(f"{shop.base_url}/api/retries") as client:
        submitted = await client.submit(dependency="warehouse", request={"path": "/fail/1"}, key=key)
        done = await client.wait(submitted.operation_id, timeout_seconds=60)
        assert [attempt.category for attempt in done.attempts] == ["transient", None]


CORE_ALONE = """
import azure.functions as func
import durable_retry

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
durable_retry.register(app, route_prefix="retries", dependencies_file="services.toml")
"""
OF_THE_CONSOLE = ("search?q=a", "overview", "metrics", "alerts", "activity", "dashboard", "bulk-actions")


def test_an_app_without_the_console_starts_and_answers_404_on_its_paths(
    bare_python: Path, tmp_path: Path, target: Target
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "function_app.py").write_text(CORE_ALONE)
    for name in ("host.json", "services.toml"):
        shutil.copy(SHOP / name, app)
    settings = {"WAREHOUSE_URL": target.url, "AzureWebJobsStorage": new_account().connection_string}
    with served(bare_python, app, tmp_path, **settings) as client:
        assert ended(client, submitted(client, a_call("bare", "/fail/1")))["status"] == "succeeded"
        answers = {path: client.get(f"/api/retries/{path}").status_code for path in OF_THE_CONSOLE}
        described = client.get("/api/retries/openapi.json").json()["paths"]
    assert set(answers.values()) == {404}, answers
    words = {path.split("/")[3] for path in described}
    assert "operations" in words
    assert words & {path.partition("?")[0] for path in OF_THE_CONSOLE} == set()


ORDER = {"order": "o-7", "amount": 5}


def write_app(page: Document, folder: Path) -> Path:
    """Write the app of a page, block by block, and return its folder."""
    for block in page.blocks("python", "toml"):
        if "file" in block.marks:
            with (folder / block.marks["file"]).open("a") as file:
                file.write(f"{block.text}\n")
    shutil.copy(SHOP / "host.json", folder)
    return folder


@pytest.fixture(scope="module")
def charges() -> Iterator[StubServer]:
    """A service that takes every charge."""
    server = StubServer(lambda _path, body: json.dumps({"id": "ch-1", "of": json.loads(body)}).encode())
    yield server
    server.stop()


@pytest.fixture(scope="module")
def account() -> Storage:
    return new_account()


@pytest.fixture(scope="module")
def emails(account: Storage) -> QueueClient:
    queue = account.base64_queue("emails")
    queue.create_queue()
    return queue


@pytest.fixture(scope="module")
def coming_from(
    python: Path,
    charges: StubServer,
    tmp_path_factory: pytest.TempPathFactory,
    account: Storage,
) -> Iterator[httpx.Client]:
    with account.base64_queue("orders") as orders:
        orders.create_queue()
    settings = {"PAYMENTS_URL": charges.url, "AzureWebJobsStorage": account.connection_string}
    app = write_app(COMING_FROM, tmp_path_factory.mktemp("written"))
    with served(python, app, tmp_path_factory.mktemp("page"), **settings) as client:
        yield client


def mailed(emails: QueueClient) -> list[dict[str, Any]]:
    found = eventually(lambda: list(emails.receive_messages()) or None, "a mail is wanted", within_seconds=60)
    for message in found:
        emails.delete_message(message)
    return [json.loads(message.content)["data"] for message in found]


@pytest.mark.parametrize(("name", "output"), [("checkout", None), ("billing", "ch-1")])
def test_what_the_page_has_after_runs(
    coming_from: httpx.Client, emails: QueueClient, name: str, output: Any
) -> None:
    assert output_of(coming_from, name) == output
    assert mailed(emails) == [ORDER]


def output_of(app: httpx.Client, orchestrator: str) -> Any:
    """Start an orchestration with an order, and return its output."""
    started = app.post(f"/runtime/webhooks/durabletask/orchestrators/{orchestrator}", json=ORDER).json()

    def look() -> dict[str, Any] | None:
        state: dict[str, Any] = app.get(started["statusQueryGetUri"]).json()
        return state if state["runtimeStatus"] not in {"Pending", "Running"} else None

    ended = eventually(look, f"{orchestrator} ends", within_seconds=90)
    assert ended["runtimeStatus"] == "Completed", ended
    return ended["output"]


def test_what_the_page_has_after_takes_an_order_from_the_queue(
    coming_from: httpx.Client, emails: QueueClient, account: Storage
) -> None:
    with account.base64_queue("orders") as orders:
        key = orders.send_message(json.dumps(ORDER)).id
    assert mailed(emails) == [ORDER]
    (found,) = coming_from.get("/api/operations", params={"key": key}).json()["items"]
    assert (found["handler"], found["source"]) == ("charge", "queue")


@pytest.mark.parametrize(
    ("text", "reason"), [('{"order": 7', "MalformedJson"), ('{"ordr": "o-7"}', "ValidationFailed")]
)
def test_what_the_page_has_after_keeps_a_message_that_is_wrong(
    coming_from: httpx.Client, account: Storage, text: str, reason: str
) -> None:
    with account.base64_queue("orders") as orders:
        orders.send_message(text)
    query = {"reason": reason}
    (letter,) = eventually(
        lambda: coming_from.get("/api/dead-letters", params=query).json()["items"] or None,
        "the dead letter is there",
    )
    assert text in coming_from.get(f"/api/dead-letters/{letter['id']}").json()["message"]


def test_the_whole_task_is_at_most_twelve_lines() -> None:
    whole = next(block for block in COMING_FROM.blocks("python") if "file" in block.marks)
    assert "on_success" in whole.text
    assert len([line for line in whole.text.splitlines() if line.strip()]) <= 12


def test_every_code_block_of_adopting_is_run() -> None:
    blocks = list(ADOPTING.blocks("python", "toml", "json", "sh"))
    assert {block.marks.get("file", block.language) for block in blocks} == {
        "function_app.py",
        "dependencies.toml",
        "json",
        "client.py",
        "sh",
    }
    assert [block.commands() for block in ADOPTING.blocks("sh")] == [
        ["make dist", "pip install dist/*.whl"],
        ["PAYMENTS_URL=http://localhost:9000 onebox start"],
        [
            "retryctl setup",
            """retryctl submit --dependency payments --path /charges --body '{"amount": 5}' --key c-1""",
        ],
    ]


def test_the_checklist_and_the_code_of_adopting_run_as_they_stand(
    python: Path, charges: StubServer, tmp_path: Path
) -> None:
    (tmp_path / "app").mkdir()
    app = write_app(ADOPTING, tmp_path / "app")
    keys, local = ADOPTING.blocks("json")
    (app / "host.json").write_text(json.dumps({"version": "2.0", **json.loads(keys.text)}))
    (app / "local.settings.json").write_text(local.text)
    program = app.joinpath("client.py").rename(tmp_path / "client.py")
    _, start, submit = ADOPTING.blocks("sh")
    settings = {"AzureWebJobsStorage": new_account().connection_string}
    (line,) = (command.replace("http://localhost:9000", charges.url) for command in start.commands())
    shell = ("/bin/sh", "-c", f'PATH="{python.parent}:$PATH"; exec env {line} "$@"', "-")
    with served(python, app, tmp_path, *shell, **settings) as client:
        engine = {"DURABLE_RETRY_URL": str(client.base_url)}
        setup, first = (_typed(command, app, engine, python.parent) for command in submit.commands())
        assert "queue  made     operations\n" in setup
        operation_id = re.search(r"op-\w+", first)
        assert operation_id is not None, first
        assert ended(client, f"/api/operations/{operation_id[0]}")["status"] == "succeeded"
        assert output_of(client, "checkout") == {"charge": "ch-1"}
        order = client.post("/api/orders", json={"number": 7}, headers={"Idempotency-Key": "order-8"})
        assert order.status_code == 202, order.text
        shop = {"SHOP_URL": str(client.base_url), "SHOP_KEY": "any"}
        done = _typed(f"python -P {program}", app, shop, python.parent)
        code = {"ENGINE_URL": str(client.base_url), "ENGINE_KEY": "any"}
        (beside,) = Document("docs/installing-elsewhere.md").blocks("python")
        exec(beside.text, code)  # noqa: S102 - the code of our own page
        assert code["charge"]({"id": "o-9"})["json"]["id"] == "ch-1"  # type: ignore[operator]
    assert done == "{'value': 'parcel 7'}\n"
