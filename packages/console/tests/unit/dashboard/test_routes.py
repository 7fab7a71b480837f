import re
import shutil
import subprocess
from http import HTTPStatus
from pathlib import Path

import azure.functions as func
import pytest

from durable_retry.hub.task_hub import TaskHub
from durable_retry_console.dashboard import routes as dashboard
from durable_retry_console.dashboard.routes import FOLDER, PAGE, static_files
from onebox.storage.installation import find_node

HUB = TaskHub("hub")
SITE = "http://localhost/api/dashboard"


async def ask(path: str | None, *, etag: str | None = None) -> func.HttpResponse:
    """Asks for the page where the path is None, else for a file."""
    request = func.HttpRequest(
        "GET",
        SITE if path is None else f"{SITE}/{path}",
        headers={} if etag is None else {"If-None-Match": etag},
        body=b"",
    )
    if path is None:
        return await dashboard.get_dashboard(request, HUB, {})
    return await dashboard.get_dashboard_file(request, HUB, {"path": path})


async def test_the_page_is_served_with_a_policy_that_allows_nothing_from_elsewhere() -> None:
    answer = await ask(None)
    assert answer.status_code == HTTPStatus.OK
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_an_address_with_a_slash_at_its_end_leads_to_the_page() -> None:
    answer = await ask("")
    assert (answer.status_code, answer.headers["Location"]) == (
        HTTPStatus.PERMANENT_REDIRECT,
        "../dashboard",
    )


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("app.js", "text/javascript; charset=utf-8"),
        ("views/overview.js", "text/javascript; charset=utf-8"),
        ("styles.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
async def test_a_file_has_its_type_and_its_content(path: str, content_type: str) -> None:
    answer = await ask(path)
    assert answer.headers["Content-Type"] == content_type
    assert answer.get_body() == (FOLDER / path).read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "../function_app.py",
        "views/../../function_app.py",
        "..%2ffunction_app.py",
        "/etc/passwd",
        "views",
        "views/",
        "./app.js",
        "APP.JS",
        "nothing.js",
        "app.js\x00",
    ],
)
async def test_nothing_else_is_served(path: str) -> None:
    answer = await ask(path)
    assert answer.status_code == HTTPStatus.NOT_FOUND
    assert answer.mimetype == "application/problem+json"


def test_a_file_of_another_kind_is_not_served_even_if_it_lies_there(tmp_path: Path) -> None:
    (tmp_path / "secret.env").write_text("KEY=1")
    (tmp_path / "a.js").write_text("1")
    assert list(static_files(tmp_path)) == ["a.js"]


@pytest.mark.parametrize("condition", ["{etag}", "W/{etag}", '"other", {etag}', "*"])
async def test_a_version_that_the_client_has_is_not_sent_again(condition: str) -> None:
    etag = (await ask("app.js")).headers["ETag"]
    answer = await ask("app.js", etag=condition.format(etag=etag))
    assert answer.status_code == HTTPStatus.NOT_MODIFIED
    assert answer.get_body() == b""
    assert answer.headers["ETag"] == etag


async def test_another_version_is_sent_anew() -> None:
    answer = await ask("app.js", etag='"other"')
    assert answer.status_code == HTTPStatus.OK


def test_every_file_that_a_file_names_is_there() -> None:
    served = static_files(FOLDER)
    for path, file in served.items():
        text = file.content.decode()
        for name in re.findall(r"""^(?:import|export) .*?from "(\.[^"]+)";""", text, re.MULTILINE):
            target = (FOLDER / path).parent.joinpath(name).resolve().relative_to(FOLDER.resolve())
            assert target.as_posix() in served, f"{path} imports {name}"
    named = re.findall(r'(?:href|src)="dashboard/([^"]+)"', served[PAGE].content.decode())
    assert {"icon.svg", "styles.css", "app.js"} <= set(named)
    assert set(named) <= set(served)


def test_no_file_names_anything_elsewhere_or_writes_html() -> None:
    for path, file in static_files(FOLDER).items():
        text = file.content.decode().replace("http://www.w3.org/", "")
        assert not re.search(
            r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text
        ), path
        assert not re.search(r'\sstyle="|\son[a-z]+="', text) or not path.endswith(".html"), path


# Whatever a module asks of the browser while it loads answers with more of the same; no loop over it begins.
LOAD = """
const ends = { [Symbol.toPrimitive]: () => "", [Symbol.iterator]: () => [][Symbol.iterator]() };
const anything = new Proxy(function () {}, {
  get: (_, name) => ends[name] ?? anything,
  apply: () => anything,
  construct: () => anything,
});
const names = ["document", "window", "localStorage", "sessionStorage", "matchMedia"];
for (const name of names) globalThis[name] = anything;
globalThis.location = { hash: "" };
await import("./app.js");
process.exit(0);
"""


def test_every_module_of_the_page_loads_and_finds_what_it_imports(tmp_path: Path) -> None:
    page = shutil.copytree(FOLDER, tmp_path / "page")
    (page / "package.json").write_text('{"type": "module"}')
    (page / "load.js").write_text(LOAD)
    command = [find_node(), "load.js"]
    done = subprocess.run(command, cwd=page, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
