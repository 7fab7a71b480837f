from unittest.mock import Mock

import pytest

from durable_retry.base.documents import read_toml
from durable_retry.rules.config import dependencies_file
from durable_retry.rules.config.dependencies_file import lines_of

FILE = """# A comment with [brackets]

[defaults.retry]
preset = "standard"

[dependencies.payments]
base_url = "https://p.example.com"
auth = { header = "Authorization", value = "x" }
headers.Accept = '''
[no.table]
'''

[dependencies."a.b".retry]
schedule_seconds = [
  1,
  2,
]
[[odd]]
name = 1

[dependency.x]
base_url = "http://x.test"
"""


LINES = [
    ("/defaults/retry/preset", 4),
    ("/dependencies/payments", 6),
    ("/dependencies/payments/base_url", 7),
    ("/dependencies/payments/auth/value", 8),
    ("/dependencies/payments/headers/Accept", 9),
    ("/dependencies/payments/retry/max_attempts", 6),
    ("/dependencies/a.b/retry/schedule_seconds/1", 14),
    ("/odd", 18),
    ("/dependency", 21),
    ("/dependencies", 6),
    ("/dependencies/a.b/base_url", 13),
    ("/nowhere", 1),
    ("", 1),
]
POINTERS = [pointer for pointer, _ in LINES]


def test_keys_are_found_where_they_are_written() -> None:
    assert [*zip(POINTERS, lines_of(FILE, POINTERS), strict=True)] == LINES


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = = 1", 1),
        ("a = 1\n\na = 2\nb = 3", 3),
        ("a = 1\na = 2\n", 2),  # `tomllib` says "at end of document"
        ("a = 1\nb = [", 2),
        ("", 1),
        (f"a = 1\nb = {'[' * 500}{']' * 500}", 1),
    ],
)
def test_what_is_no_toml_has_the_line_of_its_mistake(text: str, line: int) -> None:
    assert lines_of(text, [""]) == (line,)


def test_the_file_is_read_once_for_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Mock(wraps=read_toml)
    monkeypatch.setattr(dependencies_file, "read_toml", reading)
    lines_of(FILE, POINTERS[:1])
    for_one = reading.call_count
    lines_of(FILE, POINTERS)
    assert reading.call_count == 2 * for_one
