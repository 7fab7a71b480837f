import pytest

from onebox import CannotStartError
from onebox.durable_task import StorageProvider
from onebox.environment import AppSettings
from onebox.hub.settings import AzureTerms
from onebox.semantics import azure_terms


def terms_of(value: str | None, storage: StorageProvider | None = None) -> AzureTerms | None:
    settings = AppSettings({} if value is None else {"ONEBOX_SEMANTICS": value})
    return azure_terms(settings, storage or StorageProvider())


@pytest.mark.parametrize("value", [None, ""])
def test_the_task_hub_keeps_its_own_terms_unless_it_is_asked(value: str | None) -> None:
    assert terms_of(value) is None


def test_a_seed_can_be_given() -> None:
    terms = terms_of("azure:7")
    assert terms is not None
    assert terms.seed == 7


def test_shares_of_dying_workers_and_unanswered_fetches_can_be_given() -> None:
    terms = terms_of("azure:7,died=0.05,unanswered=.01")
    assert terms is not None
    assert (terms.seed, terms.died, terms.unanswered) == (7, 0.05, 0.01)


def test_what_was_fetched_is_hidden_for_as_long_as_host_json_says() -> None:
    storage = StorageProvider.model_validate(
        {"controlQueueVisibilityTimeout": "00:01:00", "workItemQueueVisibilityTimeout": "00:02:00"}
    )
    terms = terms_of("azure", storage)
    assert terms is not None
    assert (terms.control_hidden_seconds, terms.work_hidden_seconds) == (60, 120)


@pytest.mark.parametrize(("value", "seconds"), [("azure,hidden=2", 2), ("azure:7,died=0,hidden=0.5", 0.5)])
def test_it_may_be_hidden_for_less(value: str, seconds: float) -> None:
    terms = terms_of(value)
    assert terms is not None
    assert (terms.control_hidden_seconds, terms.work_hidden_seconds) == (seconds, seconds)


def test_without_a_seed_the_log_says_which_was_drawn(caplog: pytest.LogCaptureFixture) -> None:
    terms = terms_of("azure")
    assert terms is not None
    assert f"ONEBOX_SEMANTICS=azure:{terms.seed}" in caplog.text


@pytest.mark.parametrize(
    "value",
    [
        *("aws", "azure:x", "azure:-1", "azure:7,died=2", "azure:7,lost=1", "azure,unanswered=2"),
        *("azure,hidden=", "azure,hidden=-1"),
    ],
)
def test_anything_else_is_refused(value: str) -> None:
    with pytest.raises(CannotStartError, match="ONEBOX_SEMANTICS must be azure"):
        terms_of(value)
