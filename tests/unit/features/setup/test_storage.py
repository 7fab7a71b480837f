import re
from pathlib import Path
from typing import Final

import pytest

from durable_retry.features.setup.storage import tables_wanted

ROOT: Final = Path(__file__).parents[4]

# `_MISSING_TABLE`, which begins with an underscore, is no table's name.
_TABLE: Final = re.compile(r'^(?:[A-Z]+_)?TABLE: Final = "(\w+)"', re.MULTILINE)


@pytest.fixture(scope="module")
def made() -> set[str]:
    return set(tables_wanted())


def test_every_table_of_the_code_is_made(made: set[str]) -> None:
    files = [*(ROOT / "durable_retry").rglob("*.py"), *(ROOT / "packages/console").rglob("*.py")]
    assert {name for file in files for name in _TABLE.findall(file.read_text(encoding="utf-8"))} == made


def test_the_page_for_an_app_that_exists_names_every_table(made: set[str]) -> None:
    page = (ROOT / "docs/adopting.md").read_text(encoding="utf-8")
    storage = page.partition("**Storage.**")[2].partition("\n- ")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", storage)) - {"AzureWebJobsStorage"}
    assert named == made
