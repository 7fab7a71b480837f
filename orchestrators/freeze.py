"""The orchestration of a freeze: it keeps every dependency held, and thaws them in waves.

held ──> thaw: wave ──> wave ──> ... ──> over
  ^               └──a circuit opens──┐
  └───────────────────────────────────┘
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import DUE_AT
from durable_retry.features.freeze.names import (
    COUNT_FROZEN,
    FREEZE,
    KEEP_FROZEN,
    THAW_EVENT,
    WAKE_FROZEN,
)
from durable_retry.features.freeze.rules import Crowd, Seen, Thaw, Wave, stopped, watched_until
from durable_retry.hub.turns import Alarm, Signals, Turns, call_until_success
from durable_retry.rules.circuit.freeze import Freeze

from .wake_waiting import BETWEEN_PASSES, PASSES, SETTLE

blueprint = df.Blueprint()

LOOK_WHILE_HELD: Final = timedelta(minutes=1)
"""By then the circuit of a dependency that a deployment adds has the freeze."""
LOOK_WHILE_THAWING: Final = timedelta(seconds=5)


def freeze(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[None]:
    """Keep a freeze until it ends, another takes its place, or a thaw has let everything go.

    Args:
        input_: `freeze`, a `Freeze`; `thaw`, a `Thaw`, once one is asked for.
    """
    course = _Course(Signals(ctx), Freeze.from_json(input_["freeze"]))
    thaw = Thaw.from_json(input_["thaw"]) if "thaw" in input_ else None
    following = yield from (course.hold() if thaw is None else course.release(thaw))
    if following is not None:
        ctx.continue_as_new(following, save_events=True)


@dataclass(slots=True)
class _Course:
    """One execution: a look while held, or a wave of a thaw; each returns the next one's input, or None."""

    signals: Signals
    freeze: Freeze

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.signals.ctx.current_utc_datetime.replace(tzinfo=UTC)

    def hold(self) -> Turns[dict[str, Any] | None]:
        """Keep everything held for a while, until somebody asks for a thaw."""
        seen = yield from self._keep({})
        if not seen.is_latest:
            return None
        until = self.now + LOOK_WHILE_HELD
        if self.freeze.until is not None:
            until = min(until, self.freeze.until)
        is_asked = (yield from self._wait(until, {}, THAW_EVENT)) is not None
        if is_asked:
            asked = self.signals.take(THAW_EVENT)
            thaw = read_or(lambda: Thaw.from_json(asked), lambda _: None)
            # One that was asked for during another must not begin where a circuit has stopped that.
            return self._following(None if thaw is None or thaw.began_at <= self.freeze.at else thaw)
        return None if self.freeze.ended_at(self.now) else self._following(None)

    def release(self, thaw: Thaw) -> Turns[dict[str, Any] | None]:
        """Let a wave go, and watch the circuits."""
        crowds = yield from self._count()
        self.freeze = self.freeze.then(self.now, share=thaw.share)
        given = {"thaw": thaw.to_json(), "crowds": {name: crowd.to_json() for name, crowd in crowds.items()}}
        seen = yield from self._keep(given)
        waiting = sum(crowd.waiting for crowd in crowds.values())
        wave = Wave(thaw.number + 1, thaw.waves, thaw.by, waiting)
        if crowds:
            yield from self._wait(self.now + SETTLE, wave.to_json())
            wave = replace(wave, released=(yield from self._wake(given)))
        until = watched_until(crowds, wave.released, thaw, self.now)
        while seen.is_latest and seen.opened is None and self.now < until:
            yield from self._wait(min(until, self.now + LOOK_WHILE_THAWING), wave.to_json())
            seen = yield from self._keep(given)
        if not seen.is_latest:
            return None
        if seen.opened is not None:
            self.freeze = stopped(self.freeze, seen.opened, thaw, self.now)
            return self._following(None)
        following = thaw.next()
        if following is None:
            self.freeze = self.freeze.then(self.now, until=self.now)
            yield from self._keep({})
            return None
        return self._following(following)

    def _following(self, thaw: Thaw | None) -> dict[str, Any]:
        return {"freeze": self.freeze.to_json(), **({} if thaw is None else {"thaw": thaw.to_json()})}

    def _keep(self, given: dict[str, Any]) -> Turns[Seen]:
        asked = {"freeze": self.freeze.to_json(), **given}
        return Seen.from_json((yield from call_until_success(self.signals, KEEP_FROZEN, asked)))

    def _wait(self, until: datetime, wave: dict[str, Any], *events: str) -> Turns[str | None]:
        """Wait, and show how far it is."""
        self.signals.ctx.set_custom_status({"wave": wave, DUE_AT: to_rfc3339(until)})
        return (yield from Alarm(self.signals, until).event(*events))

    def _count(self) -> Turns[dict[str, Crowd]]:
        """Return who waits, by dependency."""
        crowds: dict[str, Crowd] = {}
        given = {"freeze": self.freeze.to_json(), "position": None}
        while True:
            counted = yield from call_until_success(self.signals, COUNT_FROZEN, given)
            for name, crowd in counted["crowds"].items():
                more = Crowd.from_json(crowd)
                crowds[name] = crowds[name].with_more(more) if name in crowds else more
            if counted["following"] is None:
                return crowds
            given |= {"position": counted["following"]}

    def _wake(self, given: dict[str, Any]) -> Turns[int]:
        """Wake those that the wave lets go, in passes, as `release_waiting` does; return how many."""
        woken, asked = 0, {"freeze": self.freeze.to_json(), **given, "changed_at": to_rfc3339(self.now)}
        for _ in range(PASSES):
            position, in_pass = None, 0
            while True:
                step = asked | {"position": position}
                done = yield from call_until_success(self.signals, WAKE_FROZEN, step)
                position, in_pass = done["following"], in_pass + done["woken"]
                if position is None:
                    break
            woken += in_pass
            if in_pass == 0:
                break
            yield from self._wait(self.now + BETWEEN_PASSES, {})
        return woken


blueprint.orchestration_trigger(context_name="context", orchestration=FREEZE)(freeze)
