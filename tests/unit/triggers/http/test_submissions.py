import azure.functions as func
import pytest

from durable_retry.triggers.http.submissions import preferred_wait_seconds


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        ("wait=5", 5),
        ("respond-async, wait=10", 10),
        ("WAIT=7; foo", 7),
        ("wait=100", 30),
        ("wait=0", 0),
        ("wait=soon", 0),
        ("await=5", 0),
        ("", 0),
    ],
)
def test_a_preference_to_wait_is_read_and_bounded(prefer: str, seconds: float) -> None:
    request = func.HttpRequest(
        "POST", "http://localhost/api/operations", headers={"Prefer": prefer}, body=b""
    )
    assert preferred_wait_seconds(request) == seconds
