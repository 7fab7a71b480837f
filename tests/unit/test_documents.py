"""What can be checked of documents without running them; `tests/e2e/test_document_commands.py` runs them."""

import json
import re
import tomllib
from collections import Counter
from itertools import chain
from typing import Any, cast

import jsonschema_rs
import pytest

from docs.published import TABLES
from durable_retry.features.openapi.routes import described
from durable_retry.features.schedules.rules import parse_schedules
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.retry.policy import PRESETS
from durable_retry.settings.catalogue import groups
from scripts.processes import ROOT
from scripts.run import build_parser, what_to_try
from tests.support.documents import Block, Document, blocks, documents, readme_curl

NOT_RUN = Counter(
    {
        ("docs/alerts.md", "needs=az"): 4,
        ("README.md", "covered-by=tests/e2e/test_document_commands.py,.ci/run"): 1,
        ("CONTRIBUTING.md", "covered-by=tests/e2e/test_document_commands.py,.ci/run"): 1,
        ("docs/deploying.md", "needs=az"): 4,
        ("docs/deploying.md", "needs=azd"): 1,
        ("docs/deploying.md", "needs=func"): 1,
        ("docs/security.md", "needs=az"): 1,
        (
            "docs/observability.md",
            "covered-by=tests/e2e/test_telemetry.py,tests/e2e/test_document_commands.py",
        ): 1,
        ("docs/adopting.md", "covered-by=tests/e2e/test_installed.py"): 3,
        ("docs/operating.md", "covered-by=tests/e2e/test_freeze.py"): 1,
        ("docs/quick-start.md", "covered-by=tests/e2e/test_document_commands.py"): 2,
    }
)
"""Blocks of commands that are not run as they stand, by document and reason: a new one is written here."""

TOOLS = {"az", "azd", "func"}
"""What a command may need that is not here."""

SECRET = "d2hhdGV2ZXItMjQtYnl0ZXMtbG9uZy1zZWNyZXQ="
CITED = re.compile(
    r"`((?:tests/)?(?:unit|property|replay|integration|fault|e2e)/[\w/]+\.py|packages/\w+/tests/[\w/]+\.py)"
    r"(?:::(\w+))?`"
)
NUMBERED = re.compile(r"^\| ([A-Z]\d+) \| (.*)$", re.MULTILINE)
SHOWS = re.compile(r"^ *@pytest\.mark\.shows\((.*)\)$", re.MULTILINE)
FOLDERS = (
    "activities",
    "bench",
    "durable_retry",
    "entities",
    "orchestrators",
    "packages",
    "scripts",
    "tests",
)
NAME = re.compile(r"\$\{(\w+)\}")
OPERATION_KEYS = {"dependency", "handler", "items", "steps", "filter"}

PAGES = [
    page
    for page in documents()
    if page.name.startswith("docs/")
    and not page.name.startswith("docs/decisions/")
    and page.name not in {"docs/README.md", "docs/index.md"}  # contents
]

each_document = pytest.mark.parametrize("document", documents(), ids=lambda document: document.name)


def ids(block: Block) -> str:
    return block.place


def target_of(document: Document, link: str) -> tuple[Document | None, str]:
    """The page that a link leads to, None when that is no page, and the anchor there."""
    path, _, anchor = link.partition("#")
    target = (document.path.parent / path).resolve() if path else document.path
    name = target.relative_to(ROOT).as_posix()
    return (Document(name) if name.endswith(".md") else None), anchor


@each_document
def test_every_link_leads_to_a_file_and_a_heading(document: Document) -> None:
    wrong = []
    for link in document.links():
        path = link.partition("#")[0]
        if not (document.path.parent / path).exists():
            wrong.append(link)
            continue
        page, anchor = target_of(document, link)
        if page is not None and anchor and anchor not in page.anchors():
            wrong.append(link)
    assert wrong == []


@each_document
def test_every_row_stands_in_a_table(document: Document) -> None:
    """Behind an empty line a row without a header is shown as text."""
    paragraphs = re.split(r"\n{2,}", document.prose)
    headless = [
        part for part in paragraphs if part.startswith("|") and not re.match(r".*\n\|[ :|-]+\|", part)
    ]
    assert headless == []


def test_every_document_is_reached_from_the_index() -> None:
    reached, open_ends = set(), [Document("docs/README.md")]
    while open_ends:
        page = open_ends.pop()
        if page.name not in reached:
            reached.add(page.name)
            open_ends += [target for link in page.links() if (target := target_of(page, link)[0])]
    # Sphinx fails when the contents of the site lack a page; GitHub puts the template into a pull request.
    found_otherwise = {"docs/index.md", ".github/pull_request_template.md"}
    assert {document.name for document in documents()} <= reached | found_otherwise


def test_the_readme_stays_short_and_leads_to_the_index() -> None:
    readme = Document("README.md")
    assert len(readme.text.splitlines()) <= 150
    assert "docs/README.md" in readme.links()


def test_the_pages_of_the_documentation_stay_below_46_000_words() -> None:
    """README included; the tables of the reference are not counted."""
    pages = [page for page in documents() if page.name.startswith("docs/") or page.name == "README.md"]
    reference = {f"docs/{name}.md" for name in TABLES}
    counted = [
        line
        for page in pages
        for line in page.path.read_text().splitlines()
        if not (page.name in reference and line.startswith("|"))
    ]
    assert sum(len(line.split()) for line in counted) < 46_000


def test_every_decision_is_in_its_index() -> None:
    index = Document("docs/decisions/README.md")
    assert sorted(index.links()) == sorted(
        page.name for page in index.path.parent.glob("*.md") if page != index.path
    )


def test_make_run_prints_the_curl_of_the_readme() -> None:
    def words(text: str) -> str:
        return " ".join(text.split())

    assert words(readme_curl()) in words(what_to_try(build_parser().parse_args([])))


def test_every_deployed_and_development_package_has_its_reason() -> None:
    reasons = Document("docs/dependencies.md").text
    pins = [
        line.partition("==")[::2]
        for name in ("requirements.txt", "requirements-dev.txt")
        for line in (ROOT / name).read_text().splitlines()
        if "==" in line
    ]
    assert len(pins) > 10
    assert [pin for pin in pins if pin[0] not in reasons or pin[1] not in reasons] == []


def test_every_test_that_a_document_names_is_there() -> None:
    missing, named = [], 0
    for document in documents():
        for path, name in CITED.findall(document.text):
            file = ROOT / (path if path.startswith(("tests/", "packages/")) else f"tests/{path}")
            named += 1
            if not file.exists() or (
                name and not re.search(rf"^\s*(async )?def {name}\(", file.read_text(), re.MULTILINE)
            ):
                missing.append(f"{document.name}: {path}::{name}")
    assert missing == []
    assert named > 0


def test_every_name_in_the_readme_of_a_folder_is_in_its_code() -> None:
    """Names of classes, of private functions, and of what has two words or more."""
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    words = {word for file in files for word in (file.stem, *re.findall(r"\w+", file.read_text()))}
    named = [
        (document.name, name)
        for document in documents()
        if document.name.startswith(FOLDERS)
        for quoted in re.findall(r"`([^`\n]+)`", document.text)
        for name in re.findall(r"\b(?:_?[a-z]+(?:_[a-z]+)+|_[a-z]+|(?:[A-Z][a-z]+){2,})\b", quoted)
    ]
    assert len(named) > 100
    assert [(page, name) for page, name in named if name not in words] == []


@pytest.mark.parametrize(
    "document", [page for page in documents() if page.name.startswith(FOLDERS)], ids=lambda page: page.name
)
def test_every_file_that_the_readme_of_a_folder_names_is_there(document: Document) -> None:
    named = set(re.findall(r"`([\w/]+\.(?:py|sql|json))`", document.text))
    files = {file.as_posix() for file in document.path.parent.rglob("*.*")}
    places = (*document.path.parents, ROOT / "durable_retry")
    missing = [
        name
        for name in named
        if not any((place / name).exists() for place in places)
        and not any(file.endswith(f"/{name}") for file in files)
    ]
    assert missing == []


def test_each_numbered_row_is_shown_by_a_test_that_bears_its_number() -> None:
    """What fails, what onebox imitates of the host and what it tries again; no test bears another number."""
    text = Document("docs/failure-modes.md").text + Document("docs/onebox.md").text
    numbers = [number for number, row in NUMBERED.findall(text) if "**not imitated**" not in row]
    assert {number[0] for number in numbers} == set("DAPWCHR")
    assert len(numbers) == len(set(numbers))
    folders = (ROOT / "tests", *(ROOT / "packages").glob("*/tests"))
    tests = [file.read_text() for folder in folders for file in folder.rglob("test_*.py")]
    shown = [re.findall(r"\w+", marked) for test in tests for marked in SHOWS.findall(test)]
    assert set(chain.from_iterable(shown)) == set(numbers)


def test_commands_that_are_not_run_are_marked_and_listed_here() -> None:
    found = Counter(
        (block.document, f"{mark}={why}") for block in blocks("sh") for mark, why in block.marks.items()
    )
    assert found == NOT_RUN


@pytest.mark.parametrize("block", [block for block in blocks("sh") if block.marks], ids=ids)
def test_a_mark_on_commands_is_true(block: Block) -> None:
    match block.marks:
        case {"needs": tool}:
            assert tool in TOOLS
            assert any(re.search(rf"(^|[\s(]){tool}\s", command) for command in block.commands())
        case {"covered-by": files}:
            covering = "\n".join((ROOT / name).read_text() for name in files.split(","))
            parts = [part for command in block.commands() for part in parts_of(command)]
            assert [part for part in parts if part not in covering] == []
        case other:
            pytest.fail(f"unknown mark {other}")


def parts_of(command: str) -> list[str]:
    """The command of a line without make's ARGS, and the names of the variables that it sets."""
    words = command.partition(" ARGS=")[0].split()
    names = [word.partition("=")[0] for word in words if re.match(r"[A-Z0-9_]+=", word)]
    return [*names, " ".join(words[len(names) :])]


def test_no_two_pages_submit_under_one_key() -> None:
    """A reader of both would be refused (422), and a loop until it is accepted would never end."""
    pages: dict[str, set[str]] = {}
    for block in blocks("sh"):
        for key in re.findall(r'--key[ =]([\w-]+)|"key": "([\w-]+)"', block.text):
            pages.setdefault("".join(key), set()).add(block.document)
    assert len(pages) > 10
    assert {key: found for key, found in pages.items() if len(found) > 1} == {}


def test_commands_stand_in_blocks_that_are_run() -> None:
    """A block in another shell's name would pass every check."""
    assert blocks("bash", "shell", "console", "zsh", "shell-session") == []


@pytest.mark.parametrize("block", blocks("json"), ids=ids)
def test_a_json_block_is_json_and_fits_what_it_is_said_to_be(block: Block) -> None:
    document = json.loads(block.text)
    match block.marks:
        case {"body": route} | {"answer": route} as marks:
            schema = schema_of(route, is_body="body" in marks)
            jsonschema_rs.validate(schema, document)
        case {}:
            assert not (isinstance(document, dict) and OPERATION_KEYS & set(document)), (
                "say: json body=POST:/..."
            )
        case other:
            pytest.fail(f"unknown mark {other}")


def test_a_body_that_would_be_refused_does_not_pass() -> None:
    schema = schema_of("POST:/api/operations", is_body=True)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(
            schema, {"dependency": "payments", "request": {"method": "POST"}, "retries": 3}
        )


def schema_of(route: str, *, is_body: bool) -> dict[str, Any]:
    """The JSON schema of `POST:/api/operations`, with the definitions that it refers to."""
    method, _, path = route.partition(":")
    whole = described()
    operation = whole["paths"][path][method.lower()]
    answers = [operation["responses"][code] for code in sorted(operation["responses"]) if code < "3"]
    content = operation["requestBody"]["content"] if is_body else answers[0]["content"]
    schema = content["application/json"]["schema"]
    return cast("dict[str, Any]", {**schema, "components": whole["components"]})


@pytest.mark.parametrize("block", blocks("toml"), ids=ids)
def test_a_toml_block_is_what_the_app_takes(block: Block) -> None:
    content = tomllib.loads(block.text)
    settings = {
        name: "http://localhost" if name.endswith("_URL") else SECRET for name in NAME.findall(block.text)
    }
    if set(content) <= {"defaults", "dependencies"}:
        parse_config(block.text, settings, function_timeout_seconds=300)
    else:
        assert parse_schedules(block.text)


@each_document
def test_settings_that_a_document_names_are_settings(document: Document) -> None:
    known = {setting.name for group in groups() for setting in group.described()}
    likely = set(
        re.findall(r"`((?:INTAKE|ALERT|COSMOS|KAFKA|EVENT_HUB|SERVICE_BUS|RESPONSE)_[A-Z_]+)`", document.text)
    )
    assert likely - known - {"COSMOS_DB"} == set()  # the source, of KEY_POINTERS_COSMOS_DB


@each_document
def test_defaults_that_a_document_gives_for_a_setting_are_its_defaults(document: Document) -> None:
    settings = (setting for group in groups() for setting in group.described())
    defaults = {setting.name: setting.default for setting in settings if setting.is_number}
    wrong = []
    for line in document.text.splitlines():
        name, *cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        numbers = [float(cell) for cell in cells if re.fullmatch(r"-?\d+(\.\d+)?", cell)]
        if name in defaults and numbers and numbers != [defaults[name]]:
            wrong.append(line)
    assert wrong == []


def test_the_presets_of_the_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*?\| (\d+) \| ", Document("docs/policies.md").text, re.MULTILINE)
    assert dict(rows) == {name: str(preset.policy.max_attempts) for name, preset in PRESETS.items()}


@pytest.mark.parametrize("document", PAGES, ids=lambda page: page.name)
def test_a_page_has_a_short_title_and_opens_with_what_it_is_for(document: Document) -> None:
    title, _, opening = document.text.split("\n")[:3]
    assert len(title.removeprefix("# ")) <= 30
    assert re.match(r"[A-Za-z`*]", opening)


def test_at_most_one_page_in_three_opens_with_what_a_reader_can_do_after_it() -> None:
    assert len([page for page in PAGES if "After this page " in page.text]) <= len(PAGES) / 3


def test_the_sdk_still_decides_on_a_retry_by_the_wall_clock_while_it_replays() -> None:
    """When this fails, the SDK was mended: then docs/coming-from.md should say from which version on."""
    page = Document("docs/coming-from.md")
    (block,) = (block for block in page.blocks("python") if "RetryableTask" in block.text)
    names: dict[str, Any] = {}
    exec(block.text, names)  # noqa: S102 # the page's own code
    with pytest.raises(AssertionError):
        names["test_a_replay_computes_the_delay_that_the_first_run_computed"]()


@each_document
def test_numbers_behind_a_setting_are_its_default(document: Document) -> None:
    """`ALERT_NOT_STARTING_SECONDS` (120): in prose as in tables."""
    defaults = {
        setting.name: float(setting.default)
        for group in groups()
        for setting in group.described()
        if setting.is_number
    }
    given = re.findall(r"`([A-Z_]+)`\s\((\d+)\)", document.text)
    assert [pair for pair in given if pair[0] in defaults and defaults[pair[0]] != float(pair[1])] == []


@pytest.fixture(scope="module")
def words_of_the_code() -> set[str]:
    """Names and headers, in lower case, of everything but documents and tests."""
    files = [
        file
        for folder in (*FOLDERS, "infra", "examples")
        if folder != "tests"
        for pattern in ("*.py", "*.bicep", "*.json", "*.yaml", "*.sh")
        for file in (ROOT / folder).rglob(pattern)
        if "node_modules" not in file.parts
    ]
    files += [ROOT / name for name in ("Makefile", "host.json", "local.settings.example.json")]
    return {word for file in files for word in re.findall(r"[\w-]+", file.read_text().lower())}


OF_OTHERS = {"PIP_EXTRA_INDEX_URL", "PYTHON_THREADPOOL_THREAD_COUNT"}  # of pip, of the Functions worker
"""What pages name in capitals and no code here reads."""


@pytest.mark.parametrize("document", PAGES, ids=lambda page: page.name)
def test_settings_and_headers_that_a_page_names_are_in_the_code(
    document: Document, words_of_the_code: set[str]
) -> None:
    named = re.findall(r"`([A-Z]+(?:_[A-Z0-9]+)+|X(?:-[A-Z][A-Za-z0-9]+)+)`", document.prose)
    unknown = {name for name in named if name.lower() not in words_of_the_code}
    assert unknown - OF_OTHERS == set()
