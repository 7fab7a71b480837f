from typing import Any

import pytest

from durable_retry.engine.base.json_pointer import pointed_at, pointer_problem
from durable_retry.engine.operations.fingerprint import canonical_json, fingerprint

REQUEST: dict[str, Any] = {
    "method": "POST",
    "json": {"amount": 5, "items": [{"id": 1}, {"id": 2}], "a/b": {"~": 0}},
}


def test_the_order_of_keys_does_not_matter() -> None:
    turned = {"json": dict(reversed(REQUEST["json"].items())), "method": "POST"}
    assert fingerprint("d", turned) == fingerprint("d", REQUEST)


def test_the_order_of_a_list_matters() -> None:
    assert fingerprint("d", [1, 2]) != fingerprint("d", [2, 1])


def test_one_number_has_one_form() -> None:
    assert canonical_json([5.0, -0.0, 1.5, 10**20, True]) == "[5,0,1.5,100000000000000000000,true]"
    assert canonical_json(2.0**60) == "1.152921504606847e+18"


@pytest.mark.parametrize("other", [True, "5", 6, None, [5], 5.5])
def test_different_values_differ(other: object) -> None:
    assert fingerprint("d", {"amount": 5}) != fingerprint("d", {"amount": other})


def test_the_target_is_part_of_it() -> None:
    assert fingerprint("dependency a", REQUEST) != fingerprint("dependency b", REQUEST)


def test_only_the_chosen_parts_count() -> None:
    changed = {**REQUEST, "headers": {"x": "y"}}
    assert fingerprint("d", changed, ["/json/amount"]) == fingerprint("d", REQUEST, ["/json/amount"])
    assert fingerprint("d", changed) != fingerprint("d", REQUEST)


def test_the_order_of_pointers_does_not_matter() -> None:
    assert fingerprint("d", REQUEST, ["/json", "/method"]) == fingerprint("d", REQUEST, ["/method", "/json"])


def test_missing_differs_from_null() -> None:
    assert fingerprint("d", {}, ["/x"]) != fingerprint("d", {"x": None}, ["/x"])


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", [REQUEST]),
        ("/json/items/1/id", [2]),
        ("/json/items/01", []),
        ("/json/items/2", []),
        ("/json/items/-", []),
        ("/json/a~1b/~0", [0]),
        ("/method/0", []),
        ("/nothing", []),
    ],
)
def test_pointers_point_as_rfc_6901_says(pointer: str, found: list[Any]) -> None:
    assert pointed_at(REQUEST, pointer) == found


@pytest.mark.parametrize("pointer", ["", "/", "/a/0", "/a~1b", "/~0"])
def test_a_good_pointer_has_no_problem(pointer: str) -> None:
    assert pointer_problem(pointer) is None


@pytest.mark.parametrize("pointer", ["a", "/~", "/~2", "#/a"])
def test_a_bad_pointer_has_one(pointer: str) -> None:
    assert pointer_problem(pointer) is not None
