import azure.functions as func
import pytest

from durable_retry.intake.routes import preferred_wait


@pytest.mark.parametrize(
    ("prefer", "seconds", "is_ignored"),
    [
        ("wait=5", 5, False),
        ("respond-async, wait=10", 10, False),
        ("WAIT=7; foo", 7, False),
        ("wait=100", 30, False),
        ("wait=0", 0, False),
        ('wait="5"', 5, False),
        ("wait=5,wait=10", 5, False),
        ("wait=soon", 0, True),
        ("wait", 0, True),
        ("wait=soon,wait=5", 0, True),
        ("wait=٣", 0, True),
        ("wait=1_0", 0, True),
        ("wait=1.5", 0, True),
        ("await=5", 0, False),
        ("", 0, False),
    ],
)
def test_a_preference_to_wait_is_read_and_bounded(prefer: str, seconds: float, *, is_ignored: bool) -> None:
    request = func.HttpRequest(
        "POST", "http://localhost/api/operations", headers={"Prefer": prefer}, body=b""
    )
    waits, headers = preferred_wait(request)
    assert (waits, "Warning" in headers) == (seconds, is_ignored)
