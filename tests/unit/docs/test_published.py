import re

import pytest

from docs.published import NAMES, TABLES, contents_below, names_of_features, published
from durable_retry.routing import table
from scripts.processes import ROOT


def test_a_page_that_is_written_by_hand_is_published_as_it_is() -> None:
    assert published("quick-start", "# Quick start\n") == "# Quick start\n"


def test_the_examples_of_the_routes_are_on_the_site_only() -> None:
    page = (ROOT / "docs/http-api.md").read_text()
    assert "### POST /api/operations" not in page
    assert "### POST /api/operations" in published("http-api", page)


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_the_reference_are_those_of_the_code(name: str) -> None:
    """When this fails: `python -m docs.published`."""
    page = (ROOT / f"docs/{name}.md").read_text()
    assert page == TABLES[name](page)
    assert "<!-- table -->\n\n| " in page


def test_every_route_has_a_row() -> None:
    page = (ROOT / "docs/http-api.md").read_text()
    rows = re.findall(r"^\| `(\w+ /api/.*?)` \| \w", page, re.MULTILINE)
    assert sorted(rows) == sorted(f"{route.method} /api/{route.path.replace('{*', '{')}" for route in table())


def test_a_signature_has_its_parameters_defaults_and_first_sentence() -> None:
    page = (ROOT / "docs/api.md").read_text()
    assert "| `Client.wait(operation_id, *, timeout_seconds)` | Wait until an operation has" in page
    assert "| `Call.seconds_left` | Seconds until this attempt is cut off" in page
    assert "eval-rst}" not in page
    assert "```{eval-rst}\n.. currentmodule:: durable_retry.testing\n" in published("api", page)


def test_the_sidebar_shows_pages_below_another() -> None:
    assert "\nrecipes\n" in contents_below("quick-start")
    assert contents_below("recipes") == ""


def test_the_sidebar_shows_at_most_twenty_entries_at_a_time() -> None:
    shelves = re.findall(r":hidden:\n\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.DOTALL)
    shown = [name for shelf in shelves for name in shelf.split()]
    below = {name: contents_below(name).partition(":hidden:\n\n")[2].split()[:-1] for name in shown}
    assert 10 < len(shown) + max(map(len, below.values())) <= 20
    pages = {file.stem for file in (ROOT / "docs").glob("*.md")} - {"README", "index"}
    assert pages == {*shown, *(name for names in below.values() for name in names)} - {"decisions/README"}


def test_the_names_that_features_add_are_those_of_the_code() -> None:
    """When this fails: `python -m docs.published`."""
    assert NAMES.read_text() == names_of_features()
