import pytest

from onebox import CannotStartError
from onebox.composition import azure_terms
from onebox.environment import AppSettings


def asked(value: str) -> AppSettings:
    return AppSettings({"ONEBOX_SEMANTICS": value})


def test_the_task_hub_keeps_its_own_terms_unless_it_is_asked() -> None:
    assert azure_terms(AppSettings({})) is None
    assert azure_terms(asked("")) is None


def test_a_seed_can_be_given() -> None:
    terms = azure_terms(asked("azure:7"))
    assert terms is not None
    assert terms.seed == 7


def test_without_one_the_log_says_which_was_drawn(caplog: pytest.LogCaptureFixture) -> None:
    terms = azure_terms(asked("azure"))
    assert terms is not None
    assert f"ONEBOX_SEMANTICS=azure:{terms.seed}" in caplog.text


@pytest.mark.parametrize("value", ["aws", "azure:x", "azure:-1"])
def test_anything_else_is_refused(value: str) -> None:
    with pytest.raises(CannotStartError, match="ONEBOX_SEMANTICS must be azure"):
        azure_terms(asked(value))
