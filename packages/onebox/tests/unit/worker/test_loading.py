import pytest
from azure.functions import _durable_functions

from onebox.worker import loading


def test_whether_typing_is_strict_is_read_once_after_the_app_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_durable_functions, "_is_strict_mode", _durable_functions._is_strict_mode)
    monkeypatch.setenv("AZURE_FUNCTIONS_DURABLE_STRICT_TYPING", "1")
    loading._decide_typing()
    assert _durable_functions._is_strict_mode()
    monkeypatch.delenv("AZURE_FUNCTIONS_DURABLE_STRICT_TYPING")
    assert _durable_functions._is_strict_mode()
