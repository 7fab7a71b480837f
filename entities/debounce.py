"""The entity `debounce`, one per debounce key and target. The rules are `features.debounce.rules`."""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from durable_retry.base.names import FORGET
from durable_retry.features.debounce.names import DEBOUNCE
from durable_retry.features.debounce.rules import (
    KEPT_FOR,
    DebouncePlace,
    DebounceRequest,
    Series,
    arrive,
    begin,
    forget,
    withdraw,
)
from durable_retry.runtime import clock

blueprint = df.Blueprint()


class Debounce(DurableEntity):
    """Operations `arrive` and `begin` are called by the orchestration that waits; `withdraw` is its signal.

    Each takes a `DebounceRequest`. The entity sends `forget` to itself.
    """

    def arrive(self, request: dict[str, Any]) -> dict[str, Any]:
        """Let a submission wait; answer: `DebouncePlace`."""
        return self._store_place(*arrive(self._stored_series(), DebounceRequest.from_json(request)), request)

    def begin(self, request: dict[str, Any]) -> dict[str, Any]:
        """Let a submission begin, unless it was replaced; answer: `DebouncePlace`."""
        return self._store_place(*begin(self._stored_series(), DebounceRequest.from_json(request)), request)

    def withdraw(self, request: dict[str, Any]) -> None:
        """End the series of a submission that was cancelled."""
        self._store_series(withdraw(self._stored_series(), DebounceRequest.from_json(request)))
        self._forget_later(request)

    def forget(self, request: dict[str, Any]) -> None:
        self._store_series(forget(self._stored_series(), DebounceRequest.from_json(request), clock.now()))

    def _store_place(self, series: Series, place: DebouncePlace, request: dict[str, Any]) -> dict[str, Any]:
        self.set_state(series.to_json())
        if place.begins:
            self._forget_later(request)
        return place.to_json()

    def _forget_later(self, request: dict[str, Any]) -> None:
        at = clock.now() + KEPT_FOR
        self.signal_entity(self.entity_context.entity_id, FORGET, request, signal_time=at)

    def _stored_series(self) -> Series | None:
        state = self.get_state(dict)
        return None if state is None else Series.from_json(state)

    def _store_series(self, series: Series | None) -> None:
        self.set_state(None if series is None else series.to_json())


blueprint.function_name(DEBOUNCE)(
    blueprint.entity_trigger(context_name="context", entity_name=DEBOUNCE)(Debounce)
)
