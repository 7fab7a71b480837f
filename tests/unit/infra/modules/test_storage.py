"""The queues that infra/ makes, against those that triggers listen to: a trigger makes none on Azure."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_retry.base.names import OPERATIONS_QUEUE
from tests.unit.infra.bicep import BicepFile

ROOT = Path(__file__).parents[4]
STORAGE = BicepFile.read(ROOT / "infra/modules/storage.bicep")
DEPLOYING = (ROOT / "docs/deploying.md").read_text()


@pytest.fixture
def listened(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    monkeypatch.setenv("FLAKY_TARGET_URL", "http://127.0.0.1:9")
    sys.modules.pop("function_app", None)
    triggers = [
        function.get_trigger().get_dict_repr()
        for function in importlib.import_module("function_app").app.get_functions()
    ]
    yield {trigger["queueName"] for trigger in triggers if trigger["type"] == "queueTrigger"}
    sys.modules.pop("function_app", None)


def looped_over(script: str) -> set[str]:
    """The queues of `for queue in ...; do` in a script."""
    return set(script.partition("for queue in ")[2].partition(";")[0].split())


def test_the_bicep_makes_every_queue_that_the_app_listens_to(listened: set[str]) -> None:
    assert OPERATIONS_QUEUE in listened
    names = STORAGE.variable("queueNames").named_children
    assert {(name.text or b"").decode().strip("'") for name in names} == listened
    kinds = [kind for kind, _ in STORAGE.resources()]
    assert "Microsoft.Storage/storageAccounts/queueServices/queues" in kinds


def test_the_page_makes_every_queue_that_the_app_listens_to(listened: set[str]) -> None:
    assert looped_over(DEPLOYING) == listened
