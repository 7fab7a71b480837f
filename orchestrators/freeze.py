"""The orchestration of a freeze: it keeps every dependency held, and thaws them in waves.

held ──> thaw: wave ──> wave ──> ... ──> over
  ^               └──a circuit opens──┐
  └───────────────────────────────────┘
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import DUE_AT
from durable_retry.circuit.entity import BETWEEN_PASSES, PASSES, SETTLE
from durable_retry.features.freeze.names import (
    COUNT_FROZEN,
    FREEZE,
    KEEP_FROZEN,
    THAW_EVENT,
    WAKE_FROZEN,
)
from durable_retry.features.freeze.rules import (
    Crowd,
    Release,
    Seen,
    Thaw,
    Wave,
    crowds_in,
    crowds_to_json,
    joined,
    stopped,
    watched_until,
)
from durable_retry.hub.turns import InterruptibleTimer, Signals, Turns, call_until_success
from durable_retry.rules.circuit.freeze import Freeze

blueprint = df.Blueprint()

LOOK_WHILE_HELD: Final = timedelta(minutes=1)
"""Circuits are checked this often: that of a dependency that a deployment adds lacks the freeze."""
LOOK_AGAIN: Final = timedelta(seconds=2)
"""A signal has reached a circuit by then, unless it was lost."""
_MAX_SIGNALS: Final = 10
"""So often the same is signalled to circuits at most: one that cannot be read never shows that it has it."""
LOOK_WHILE_THAWING: Final = timedelta(seconds=5)
_LOOKS: Final = 12
"""Looks in one history: every turn replays those before it."""


def freeze(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Keep a freeze until it ends, another takes its place, or a thaw has let everything go.

    Args:
        input_: `freeze`, a `Freeze`; `thaw`, a `Thaw`, once one is asked for.

    Returns:
        `{"end": "over" | "replaced" | "thawed"}`; None when the orchestration continues as new.
    """
    course = _Course(Signals(ctx), Freeze.from_json(input_["freeze"]))
    if "thaw" not in input_:
        following = yield from course.hold()
    else:
        thaw, release = Thaw.from_json(input_["thaw"]), input_.get("release")
        following = yield from (
            course.release(thaw) if release is None else course.watch(thaw, Release.from_json(release))
        )
    if "end" in following:
        return following
    ctx.continue_as_new(following, save_events=True)
    return None


@dataclass(slots=True)
class _Course:
    """One execution: its steps return the input of the next one, or the end."""

    signals: Signals
    freeze: Freeze

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.signals.now

    def hold(self) -> Turns[dict[str, Any]]:
        """Keep everything held for a while, until somebody asks for a thaw."""
        seen = yield from self._keep()
        if not seen.is_latest:
            return {"end": "replaced"}
        until = self.now + (LOOK_AGAIN if seen.told else LOOK_WHILE_HELD)
        if self.freeze.until is not None:
            until = min(until, self.freeze.until)
        if (yield from self._wait(until, None, THAW_EVENT)) is not None:
            return self._following(self._requested())
        return {"end": "over"} if self.freeze.ended_at(self.now) else self._following()

    def release(self, thaw: Thaw) -> Turns[dict[str, Any]]:
        """Release a wave."""
        crowds = yield from self._count()
        if thaw.number == 0:
            # Nobody who requested another one meanwhile could see this one, and be refused.
            thaw = self._requested() or thaw
        self.freeze = self.freeze.then(self.now, share=thaw.share)
        wave = Wave(thaw.number + 1, thaw.waves, thaw.by, sum(crowd.waiting for crowd in crowds.values()))
        yield from self._tell(wave, thaw, crowds)
        if crowds:
            yield from self._wait(self.now + SETTLE, wave)
            wave = yield from self._wake(wave, crowds)
        return self._following(thaw, Release(crowds, wave, watched_until(thaw, wave, self.now)))

    def watch(self, thaw: Thaw, release: Release) -> Turns[dict[str, Any]]:
        """Watch the circuits after a wave, for a while."""
        for _ in range(_LOOKS):
            seen = yield from self._keep(thaw, release.crowds)
            if not seen.is_latest:
                return {"end": "replaced"}
            if seen.opened is not None:
                self.freeze = stopped(self.freeze, seen.opened, thaw, self.now)
                return self._following()
            if self.now >= release.until:
                return (yield from self._next(thaw, release))
            yield from self._wait(min(release.until, self.now + LOOK_WHILE_THAWING), release.wave)
        return self._following(thaw, release)

    def _requested(self) -> Thaw | None:
        """Return the thaw that was requested last; None for none."""
        thaw: Thaw | None = None
        while self.signals.has_come(THAW_EVENT):
            read = partial(Thaw.from_json, self.signals.take(THAW_EVENT))
            latest = read_or(read, lambda _: None)
            # A thaw that was requested during another one must not begin when a circuit stopped that one.
            if latest is not None and latest.began_at > self.freeze.at:
                thaw = latest
        return thaw

    def _next(self, thaw: Thaw, release: Release) -> Turns[dict[str, Any]]:
        following = thaw.next()
        if following is not None:
            return self._following(following)
        self.freeze = self.freeze.then(self.now, until=self.now)
        has_ended = yield from self._tell(release.wave)
        # A circuit that has not heard of the end would show the thaw for ever.
        return {"end": "thawed"} if has_ended else self._following(thaw, release)

    def _following(self, thaw: Thaw | None = None, release: Release | None = None) -> dict[str, Any]:
        parts = {"freeze": self.freeze, "thaw": thaw, "release": release}
        return {name: part.to_json() for name, part in parts.items() if part is not None}

    def _keep(self, thaw: Thaw | None = None, crowds: Mapping[str, Crowd] = {}) -> Turns[Seen]:
        request = self._following(thaw) | {"crowds": crowds_to_json(crowds)}
        return Seen.from_json((yield from call_until_success(self.signals, KEEP_FROZEN, request)))

    def _tell(self, wave: Wave, thaw: Thaw | None = None, crowds: Mapping[str, Crowd] = {}) -> Turns[bool]:
        """Signal the freeze to the circuits until all show that they have it; return whether they do."""
        for _ in range(_MAX_SIGNALS):
            seen = yield from self._keep(thaw, crowds)
            if seen.told == 0:
                return True
            yield from self._wait(self.now + LOOK_AGAIN, wave)
        return False

    def _wait(self, until: datetime, wave: Wave | None, *events: str) -> Turns[str | None]:
        """Wait, and show how far it is."""
        status = {} if wave is None else {"wave": wave.to_json()}
        self.signals.ctx.set_custom_status(status | {DUE_AT: to_rfc3339(until)})
        return (yield from InterruptibleTimer(self.signals, until).event(*events))

    def _count(self) -> Turns[dict[str, Crowd]]:
        """Count the waiting operations, by dependency."""
        crowds: dict[str, Crowd] = {}
        step = {"freeze": self.freeze.to_json(), "position": None}
        while True:
            counted = yield from call_until_success(self.signals, COUNT_FROZEN, step)
            crowds = joined(crowds, crowds_in(counted))
            if counted["following"] is None:
                return crowds
            step |= {"position": counted["following"]}

    def _wake(self, wave: Wave, crowds: Mapping[str, Crowd]) -> Turns[Wave]:
        """Wake the operations of a wave, in passes as `release_waiting`; return the wave after that."""
        request = self._following() | {"crowds": crowds_to_json(crowds), "changed_at": to_rfc3339(self.now)}
        for _ in range(PASSES):
            before, position = wave.released, None
            while True:
                step = request | {"position": position}
                answer = yield from call_until_success(self.signals, WAKE_FROZEN, step)
                wave = replace(wave, released=wave.released + answer["woken"])
                if (position := answer["following"]) is None:
                    break
            if wave.released == before:
                break
            yield from self._wait(self.now + BETWEEN_PASSES, wave)
        return wave


blueprint.orchestration_trigger(context_name="context", orchestration=FREEZE)(freeze)
