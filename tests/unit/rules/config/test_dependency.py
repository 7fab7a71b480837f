from dataclasses import dataclass, replace

import pytest
from pydantic import PydanticSchemaGenerationError, TypeAdapter

from durable_retry.base.text import Secret
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.config.dependency import Auth, Bounds, Dependency, Webhook


class Bounding(Bounds):
    """Keys of a feature that bound attempts."""

    @property
    def is_on(self) -> bool:
        return True


OFF = Dependency(
    name="payments",
    base_url="https://payments.example.com",
    circuit=CircuitSettings(enabled=False),
    retry_budget=RetryBudgetSettings(ratio=0),
)


@pytest.mark.parametrize(
    ("dependency", "needs_admission"),
    [
        (OFF, False),
        (replace(OFF, circuit=CircuitSettings()), True),
        (replace(OFF, retry_budget=RetryBudgetSettings()), True),
        (replace(OFF, of_features={"bounding": Bounding()}), True),
        (replace(OFF, of_features={"bounding": Bounds()}), False),
    ],
)
def test_an_attempt_asks_for_admission_where_anything_could_hold_it_up(
    dependency: Dependency, *, needs_admission: bool
) -> None:
    assert dependency.needs_admission is needs_admission


def test_workers_may_let_attempts_start_where_a_feature_does_not_say_that_they_may_not() -> None:
    assert Bounding().has_shares


def test_clients_see_the_mask_of_every_secret() -> None:
    secret = Secret("s3cret")
    whole = replace(
        OFF,
        headers={"X-Token": secret, "Accept": "x"},
        auth=Auth("Authorization", secret),
        webhook=Webhook((secret, secret)),
    )
    shown = TypeAdapter(Dependency).dump_json(whole).decode()
    assert "s3cret" not in shown
    assert shown.count('"***"') == 4
    assert '"Accept":"x"' in shown


def test_a_class_whose_secret_is_not_masked_makes_no_answer() -> None:
    @dataclass
    class Unmasked:
        secret: Secret

    with pytest.raises(PydanticSchemaGenerationError):
        TypeAdapter(Unmasked)
