"""Triggers fired by hand, through `POST /admin/functions/{name}`: their service need not be there."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from onebox.clock import Clock
from onebox.triggers.event_data import event_data
from onebox.triggers.queue_message import manual_metadata
from onebox.triggers.retrying import RetryingRunner
from onebox.triggers.timer_info import timer_datum
from onebox.worker.durable import BindingInputs
from onebox.worker.functions import (
    ENTITY_TRIGGER,
    ORCHESTRATION_TRIGGER,
    QUEUE_TRIGGER,
    TIMER_TRIGGER,
    Function,
)
from onebox.worker.runner import json_datum, text_datum

# These take protobuf messages that only the task hub can write.
_HUB_ONLY = {ORCHESTRATION_TRIGGER, ENTITY_TRIGGER}


class ManualTriggers:
    """Runs a function as though its trigger had fired."""

    def __init__(self, retrying: RetryingRunner, inputs: BindingInputs, clock: Clock) -> None:
        self._retrying = retrying
        self._inputs = inputs
        self._clock = clock

    def prepare(
        self, function: Function, given: Any, told: Mapping[str, Any]
    ) -> Callable[[], Awaitable[None]] | None:
        """Return what runs the function; None when its trigger cannot be fired by hand.

        Args:
            function: Which.
            given: The `input` of the request: text, or JSON, which is handed over as its text.
            told: The `metadata` of the request, which the host does not have: the message's properties, like
                MessageId, in place of made-up ones.
        """
        if function.trigger.type in _HUB_ONLY:
            return None
        text = given if isinstance(given, str) else json.dumps(given)
        datum, metadata = self._data(function, text, told)

        async def run() -> None:
            inputs = [(function.trigger.name, datum), *self._inputs.of(function)]
            await self._retrying.run(function, inputs, metadata, reason="fired by hand")

        return run

    def _data(self, function: Function, text: str, told: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        now = self._clock.now()
        match function.trigger.type:
            case kind if kind == QUEUE_TRIGGER:
                return text_datum(text), manual_metadata(text, now)
            case kind if kind == TIMER_TRIGGER:
                return timer_datum(last=None, next_due=None, last_updated=None, past_due=False), {}
        event = event_data(function, text, now, told)
        return event or ((json_datum(text) if _is_json(text) else text_datum(text)), {})


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
