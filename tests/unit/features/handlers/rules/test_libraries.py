from itertools import product

import pytest

from durable_retry.base.names import Category
from durable_retry.features.handlers.rules.libraries import kind_by_code, kind_of
from durable_retry.rules.config.dependency import _FAILURE_NAME
from durable_retry.rules.retry.classify import UNAUTHORIZED, Classification

TRANSIENT = Classification(Category.TRANSIENT)
AWS = "botocore.exceptions.ClientError"


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("Transient", Category.TRANSIENT),
        ("Throttled", Category.THROTTLED),
        ("Rejected", Category.BUSINESS_RULE),
    ],
)
def test_a_handlers_exceptions_say_what_they_are(name: str, category: Category) -> None:
    assert kind_of([f"durable_retry.{name}", name, "Exception"]) == Classification(category)


def test_the_first_name_that_is_known_decides_and_an_unknown_kind_is_none() -> None:
    assert kind_of([f"{AWS}.SlowDown", AWS]) == Classification(Category.THROTTLED)
    assert kind_of([f"{AWS}.Other", AWS]) == TRANSIENT
    assert kind_of(["vendor.Error", "builtins.ValueError", "Rejected"]) is None


def test_a_code_decides_beside_an_answer_and_a_class_does_not() -> None:
    assert kind_by_code([f"{AWS}.ExpiredToken", AWS]) == UNAUTHORIZED
    assert kind_by_code([AWS, "psycopg.IntegrityError"]) is None


def test_what_classify_says_stands_above_what_is_known() -> None:
    rules = {"Rejected": Category.TRANSIENT, "OSError": Category.UNAUTHORIZED}
    assert kind_of(["durable_retry.Rejected", "Rejected"], rules=rules) == TRANSIENT
    assert kind_of(["builtins.OSError", "OSError"], rules=rules) == UNAUTHORIZED


@pytest.mark.parametrize("name", ["redis.exceptions.TimeoutError", "redis.TimeoutError", "TimeoutError"])
def test_classify_may_name_a_type_in_full_by_its_package_or_alone(name: str) -> None:
    full = "redis.exceptions.TimeoutError", "redis.TimeoutError", "TimeoutError"
    assert kind_of(full, rules={name: Category.AMBIGUOUS}) == Classification(Category.AMBIGUOUS)


def test_classify_takes_names_with_codes() -> None:
    owners, codes = ("ClientError", "botocore.ClientError"), ("SlowDown", "112", "server-busy")
    assert all(_FAILURE_NAME.fullmatch(f"{owner}.{code}") for owner, code in product(owners, codes))
