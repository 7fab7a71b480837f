"""Runs one operation of an entity, as the SDK's test kit does and without its encoding of every value."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from durabletask.entities import DurableEntity, EntityInstanceId


@dataclass
class Signal:
    """What an entity sends to an entity; `at` is an aware instant, None means at once."""

    entity: str
    operation: str
    input: Any
    at: datetime | None


@dataclass
class Context:
    """An entity's context as far as this app uses it.

    Attributes:
        entity_id: The entity.
        state: Its state, JSON-serializable; None when it has none.
        signals: What it sent.
        starts: Orchestrations that it started: name, id and input.
    """

    entity_id: EntityInstanceId
    state: Any
    signals: list[Signal] = field(default_factory=list)
    starts: list[tuple[str, str, Any]] = field(default_factory=list)

    def get_state(self, _type: type | None = None, default: Any = None) -> Any:
        return default if self.state is None else self.state

    def set_state(self, state: Any) -> None:
        self.state = state

    def signal_entity(
        self,
        entity_id: EntityInstanceId,
        operation: str,
        input: Any = None,  # noqa: A002 - the SDK's name for it
        signal_time: datetime | None = None,
    ) -> None:
        self.signals.append(Signal(str(entity_id), operation, input, signal_time))

    def schedule_new_orchestration(
        self,
        name: str,
        input: Any = None,  # noqa: A002 - the SDK's name for it
        *,
        instance_id: str,
    ) -> str:
        self.starts.append((name, instance_id, input))
        return instance_id


@dataclass
class Done:
    """What came of an operation."""

    result: Any
    state: Any
    signals: list[Signal]
    starts: list[tuple[str, str, Any]]


def operate(kind: type[DurableEntity], entity: str, operation: str, given: Any, state: Any) -> Done:
    """Run an operation; what raises leaves the state as it was.

    Args:
        kind: The entity's class.
        entity: Its id, `@name@key`.
        operation: A method of the class, which takes one value.
        given: The operation's input.
        state: Before it; the class must not change it in place.
    """
    context: Any = Context(EntityInstanceId.parse(entity), state)
    instance = kind()
    instance._initialize_entity_context(context)
    result = getattr(instance, operation)(given)
    return Done(result, context.state, context.signals, context.starts)


@dataclass(frozen=True)
class Operated:
    """An operation of an entity that is over.

    Attributes:
        name: The name of the entity.
        key: Its key.
        operation: A method of its class.
        given: The operation's input.
        before: The state before it.
        after: The state after it.
        answer: What it returned.
    """

    name: str
    key: str
    operation: str
    given: Any
    before: Any
    after: Any
    answer: Any
