"""What a submission says of its order, and what an operation keeps of that."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import Field

from durable_retry.base.json_forms import JsonShape
from durable_retry.base.validation import Label, Problem, Strict
from durable_retry.features.order.names import ORDER, OrderOnFailure, OrderOnFailureName
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.request import Members, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(JsonShape):
    """The order that an operation keeps."""

    key: str  # the caller's `order_key`
    on_failure: OrderOnFailure
    # Its number, and the operation before it if that had not ended; None where it joins its lane when it
    # begins.
    number: int | None = None
    after: str | None = None

    @property
    def blocks(self) -> bool:
        """Whether those behind it wait when it ends as a dead letter."""
        return self.on_failure is OrderOnFailure.BLOCK


def order_of(operation: OperationInput) -> Order | None:
    """Return the order that an operation keeps; None where it keeps none."""
    part = (operation.parts or {}).get(ORDER)
    return None if part is None else Order.from_json(part)


def blocks_its_order(operation: OperationInput) -> bool:
    """Whether those behind an operation wait when it ends as a dead letter."""
    order = order_of(operation)
    return order is not None and order.blocks


class OrderKeys(Strict):
    """The keys that a dependency has of it.

    Attributes:
        order_on_failure: What becomes of those behind an operation of their order key that ends as a dead
            letter, where it does not say so: they wait (`block`), or go on (`skip`).
    """

    order_on_failure: OrderOnFailureName = "block"


class OrderMembers(Strict):
    """The members that a submission has of it."""

    order_key: Label | None = Field(
        default=None,
        description="Operations with it run one after the other, in the order of their acceptance.",
    )
    order_on_failure: OrderOnFailureName | None = Field(
        default=None,
        description="What those behind it do when it ends as a dead letter; "
        "null takes what the dependency has.",
    )


class _Ordering(Members):
    model = OrderMembers

    def problems(self, document: Mapping[str, Any]) -> Iterator[Problem]:
        if document.get("order_on_failure") is not None and document.get("order_key") is None:
            yield Problem("/order_on_failure", "needs an order_key: without one nothing waits behind it")

    def part_of(
        self, members: OrderMembers | None, _target: str, dependency: Dependency, _now: datetime
    ) -> Part | None:
        if members is None or members.order_key is None:
            return None
        keys = dependency.keys_of(ORDER, OrderKeys)
        on_failure = OrderOnFailure(members.order_on_failure or keys.order_on_failure)
        return Part(Order(key=members.order_key, on_failure=on_failure).to_json())

    def part_of_replay(self, part: Mapping[str, Any]) -> Mapping[str, Any] | None:
        order = Order.from_json(part)
        return Order(key=order.key, on_failure=order.on_failure).to_json()


MEMBERS: Final = _Ordering()
