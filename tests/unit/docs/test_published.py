"""What the site adds to the pages of docs/."""

from docs.published import contents_below, published
from scripts.processes import ROOT


def test_a_page_that_is_written_by_hand_is_published_as_it_is() -> None:
    assert published("quick-start", "# Quick start\n") == "# Quick start\n"


def test_what_is_made_from_the_code_is_not_in_the_repository() -> None:
    page = (ROOT / "docs/http-api.md").read_text()
    assert "### POST /api/operations" not in page
    assert "### POST /api/operations" in published("http-api", page)


def test_the_sidebar_shows_pages_below_another() -> None:
    assert "\nrecipes\n" in contents_below("quick-start")
    assert contents_below("recipes") == ""


def test_the_shelf_for_users_has_at_most_twenty_pages() -> None:
    index = (ROOT / "docs/index.md").read_text()
    shelf = index.partition(":caption: Use it\n:hidden:\n\n")[2].partition("```")[0]
    assert 10 < len(shelf.split()) <= 20
