import pytest

from onebox.app_settings import AppSettings
from onebox.errors import CannotStartError
from onebox.http.messages import body_limit_bytes


def test_the_largest_body_is_100_mib_unless_an_app_setting_says_otherwise() -> None:
    assert body_limit_bytes(AppSettings({})) == 100 * 1024 * 1024
    assert body_limit_bytes(AppSettings({"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "5"})) == 5


@pytest.mark.parametrize("text", ["0", "-1", "100 MB"])
def test_a_limit_that_is_no_number_of_bytes_keeps_it_from_starting(text: str) -> None:
    with pytest.raises(CannotStartError, match="FUNCTIONS_REQUEST_BODY_SIZE_LIMIT must be a number of bytes"):
        body_limit_bytes(AppSettings({"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": text}))
