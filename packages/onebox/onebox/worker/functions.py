"""What the app declares: its functions with their triggers, bindings and retry policies."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

HTTP_TRIGGER = "httpTrigger"
QUEUE_TRIGGER = "queueTrigger"
TIMER_TRIGGER = "timerTrigger"
ORCHESTRATION_TRIGGER = "orchestrationTrigger"
ENTITY_TRIGGER = "entityTrigger"
ACTIVITY_TRIGGER = "activityTrigger"
DURABLE_CLIENT = "durableClient"

# Under which property a durable trigger's binding may name the function otherwise than its decorator does.
_DURABLE_NAME = {
    ORCHESTRATION_TRIGGER: "orchestration",
    ENTITY_TRIGGER: "entityName",
    ACTIVITY_TRIGGER: "activity",
}


@dataclass(frozen=True)
class Binding:
    """One binding of a function, as it would stand in function.json.

    Attributes:
        name: The parameter, or "$return".
        type: Like "queueTrigger".
        is_output: Whether data goes from the function to the binding.
        properties: The whole table, camelCase.
    """

    name: str
    type: str
    is_output: bool
    properties: Mapping[str, Any]

    @property
    def is_trigger(self) -> bool:
        """Whether this binding starts the function."""
        return self.type.lower().endswith("trigger")

    def text(self, key: str) -> str | None:
        """Return a property as text; None when it is not there."""
        value = self.properties.get(key)
        return None if value is None else str(value)


@dataclass(frozen=True)
class RetryOptions:
    """The retry policy that a function's decorator declares.

    Attributes:
        max_retry_count: Runs after the first; -1 for ever.
        fixed_delay: Pause before each; None for an exponential backoff between the two below.
        minimum_delay: The first pause of an exponential backoff.
        maximum_delay: The longest one.
    """

    max_retry_count: int
    fixed_delay: timedelta | None = None
    minimum_delay: timedelta = timedelta()
    maximum_delay: timedelta = timedelta.max


@dataclass(frozen=True)
class Function:
    """One function of the app.

    Attributes:
        name: As registered, unique without regard to case.
        function_id: The runtime's own handle.
        trigger: What starts it.
        bindings: All bindings, the trigger among them.
        retry: Its declared retry policy; None when it has none.
        durable_code: What the SDK wraps: the app's own orchestrator or entity; None for any other function.
    """

    name: str
    function_id: str
    trigger: Binding
    bindings: tuple[Binding, ...] = ()
    retry: RetryOptions | None = field(default=None)
    durable_code: Callable[..., Any] | None = None

    @property
    def durable_name(self) -> str:
        """The name under which orchestrations and clients call it."""
        return self.trigger.text(_DURABLE_NAME.get(self.trigger.type, "")) or self.name

    @functools.cached_property
    def inputs(self) -> tuple[Binding, ...]:
        """The bindings, beside the trigger, that bring data in."""
        return tuple(each for each in self.bindings if not each.is_output and not each.is_trigger)

    @functools.cached_property
    def outputs(self) -> tuple[Binding, ...]:
        """The bindings that take data out."""
        return tuple(each for each in self.bindings if each.is_output)


class Catalogue:
    """All functions of the app."""

    def __init__(self, functions: Iterable[Function]) -> None:
        self._functions = tuple(functions)

    def __iter__(self) -> Iterator[Function]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def with_trigger(self, trigger_type: str) -> tuple[Function, ...]:
        """Return the functions that a trigger of this type starts."""
        return tuple(each for each in self._functions if each.trigger.type == trigger_type)

    def find(self, name: str) -> Function | None:
        """Return the function of this name, without regard to case; None when there is none."""
        return next((each for each in self._functions if each.name.lower() == name.lower()), None)
