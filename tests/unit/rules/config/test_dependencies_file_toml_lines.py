import pytest

from durable_retry.rules.config.dependencies_file import line_of

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
"""


@pytest.mark.parametrize(
    ("pointer", "line"),
    [
        ("/defaults/retry/preset", 4),
        ("/dependencies/payments", 6),
        ("/dependencies/payments/base_url", 7),
        ("/dependencies/payments/auth/value", 8),
        ("/dependencies/payments/headers/Accept", 9),
        ("/dependencies/payments/retry/max_attempts", 6),
        ("/dependencies/a.b/retry/schedule_seconds/1", 14),
        ("/odd", 18),
        ("/nowhere", 1),
        ("", 1),
    ],
)
def test_a_key_is_found_where_it_is_written(pointer: str, line: int) -> None:
    assert line_of(FILE, pointer) == line


def test_what_is_no_toml_has_a_first_line() -> None:
    assert line_of("a = = 1", "/a") == 1
