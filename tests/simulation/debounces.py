"""What is seen of the entities of debounce keys."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from durable_retry.features.debounce.names import ARRIVE, DEBOUNCE
from durable_retry.features.debounce.rules import DebounceRequest
from tests.simulation.entities import Operated

type Joined = frozenset[tuple[datetime, str]]


@dataclass
class DebounceWatch:
    """Follows who joined.

    Attributes:
        begun_though_replaced: What began although a later one had joined before.
    """

    begun_though_replaced: list[str] = field(default_factory=list)
    _history: dict[str, list[tuple[Any, Joined]]] = field(default_factory=lambda: defaultdict(list))

    def changed(self, operated: Operated) -> None:
        if operated.name != DEBOUNCE:
            return
        history, request = self._history[operated.key], DebounceRequest.from_json(operated.given)
        # A state may not have been stored: then an earlier one is there again.
        states = (joined for state, joined in reversed(history) if state == operated.before)
        joined: Joined = frozenset() if operated.before is None else next(states, frozenset())
        name = (request.accepted_at, request.operation_id)
        begins = operated.answer is not None and operated.answer["begins"]
        if later := [each for each in joined if each > name and begins]:
            self.begun_though_replaced.append(f"{name} began although {max(later)} had joined")
        history.append((operated.after, joined | ({name} if operated.operation == ARRIVE else frozenset())))
