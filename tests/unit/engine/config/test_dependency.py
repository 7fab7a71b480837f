"""What does not fit together in the settings of one dependency, and what clients see of its secrets."""

from dataclasses import dataclass, replace

import pytest
from pydantic import PydanticSchemaGenerationError, TypeAdapter

from durable_retry.engine.base.text import Secret
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings
from durable_retry.engine.circuit.states import CircuitSettings
from durable_retry.engine.config.dependency import Auth, Dependency, Webhook, limits_problems
from durable_retry.engine.limits.settings import LimitSettings

ADAPTIVE = LimitSettings(max_concurrency=20, adaptive=True, min_concurrency=2, latency_seconds=0.5)
OFF = Dependency(
    name="payments",
    base_url="https://payments.example.com",
    circuit=CircuitSettings(enabled=False),
    retry_budget=RetryBudgetSettings(ratio=0),
)


@pytest.mark.parametrize(
    ("limits", "circuit_enabled", "keys"),
    [
        (ADAPTIVE, True, []),
        (LimitSettings(min_concurrency=9), False, []),
        (replace(ADAPTIVE, max_concurrency=1), True, ["adaptive"]),
        (replace(ADAPTIVE, min_concurrency=21), True, ["min_concurrency"]),
        (ADAPTIVE, False, ["adaptive"]),
    ],
)
def test_settings_that_do_not_fit_together_say_what_to_write(
    limits: LimitSettings, *, circuit_enabled: bool, keys: list[str]
) -> None:
    problems = limits_problems(limits, circuit_enabled=circuit_enabled)
    assert [key for key, _ in problems] == keys
    assert all("write " in detail for _, detail in problems)


@pytest.mark.parametrize(
    ("dependency", "needs_admission"),
    [
        (OFF, False),
        (replace(OFF, circuit=CircuitSettings()), True),
        (replace(OFF, retry_budget=RetryBudgetSettings()), True),
        (replace(OFF, limits=LimitSettings(rate_per_second=1)), True),
    ],
)
def test_an_attempt_asks_for_admission_where_anything_could_hold_it_up(
    dependency: Dependency, *, needs_admission: bool
) -> None:
    assert dependency.needs_admission is needs_admission


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
