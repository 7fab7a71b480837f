import json

from durable_retry.routing import table
from tests.support.documents import Document

PAGE = Document("docs/http-api.md")


def test_every_route_stands_there_once() -> None:
    headings = [line for line in PAGE.text.splitlines() if line.startswith("### ")]
    routes = [f"### {route.method} /api/{route.path.replace('{*', '{')}" for route in table()]
    assert sorted(headings) == sorted(routes)


def test_every_body_has_an_example() -> None:
    bodies = [block.marks["body"] for block in PAGE.blocks("json") if "body" in block.marks]
    assert len(bodies) == len([route for route in table() if route.body is not None])


def test_examples_are_written_as_a_person_would() -> None:
    first = next(block for block in PAGE.blocks("json") if "body" in block.marks)
    assert json.loads(first.text)["key"] == "evt-1"
    assert '"on_success": [{' in first.text  # what fits on a line stands on one
    assert max(len(line) for block in PAGE.blocks("json") for line in block.text.splitlines()) < 120
