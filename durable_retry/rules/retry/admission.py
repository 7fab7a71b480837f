"""What an operation has reached in the admission of its next attempt, while attempts are blocked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from durable_retry.base.json_forms import JsonShape
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Permitted, Refused
from durable_retry.rules.retry.slots import Slot, SlotPostponed, is_valid

PAST_THE_CIRCUIT: Final = "sent past the circuit, which does not count it and stays as it is"
"""Reason of an attempt that somebody let through by hand."""

WITHOUT_THE_CIRCUIT: Final = "went on without the circuit, which did not answer"
WITHOUT_THE_LIMITER: Final = "went on without the limiter, which did not answer"


@dataclass(frozen=True, slots=True)
class AdmissionState(JsonShape):
    """What an operation has reached in the admission of its next attempt."""

    waiting: bool = False  # the circuit refused it before in this wait, so it is released in its turn
    # The start for which the retry budget took its token; None when it did not.
    promised_at: datetime | None = None
    # The entity's permit for a probe; None when it has none.
    permit: Permitted | None = None
    # When the attempt was first due, before anything blocked it; None for a first attempt.
    due_at: datetime | None = None
    circuit_key: str | None = None  # the limit key whose circuit refused or postponed it; None for none
    # Granted by the entity `call_limiter` for this attempt; None when there is none.
    slot: Slot | None = None
    # Until when the slot is lent at least; None where none was requested.
    slot_ends_at: datetime | None = None
    turn_at: datetime | None = None  # its latest start that the limiter counted; None when it had none
    # When the attempt was first due, if it waits for a slot; None if not.
    slot_since: datetime | None = None
    limits: Mapping[str, Any] | None = None  # the limits by which it waits for a slot; None where it does not
    # How many older attempts waited for a slot when it last asked; None when not known.
    ahead: int | None = None
    # Whether somebody lets it past its circuit, limits and budget, which do not count it; None for not.
    is_canary: bool | None = None
    # The executions of this attempt that sent nothing and may have left its marker.
    unsent: tuple[str, ...] | None = None

    @property
    def is_probe(self) -> bool:
        """Whether its attempt tests the dependency for all that wait: as a probe, or past the circuit."""
        return self.is_canary is True or (self.permit is not None and self.permit.lease_id is not None)

    @property
    def has_place(self) -> bool:
        """Whether it has a place at the limiter, which expects it."""
        return self.ahead is not None

    def with_nothing_held(self) -> "AdmissionState":
        """Return what is left when no attempt is made for now: since when it is due, and that it waits."""
        return replace(self, ahead=None, turn_at=None, promised_at=None, permit=None)

    @property
    def bypassed(self) -> tuple[str, ...]:
        """The circuit or the limiter that the attempt skips, and why, each a few words."""
        passes = (
            (self.is_canary, PAST_THE_CIRCUIT),
            (self.permit is not None and self.permit.fail_open, WITHOUT_THE_CIRCUIT),
            (self.slot is not None and self.slot.fail_open, WITHOUT_THE_LIMITER),
        )
        return tuple(reason for is_so, reason in passes if is_so)

    def at_another_name(self) -> "AdmissionState":
        """Return what is left where the dependency has another name by now, and with it other entities."""
        return AdmissionState(
            due_at=self.due_at, slot_since=self.slot_since, is_canary=self.is_canary, unsent=self.unsent
        )

    def at_limiter(self, limits: Mapping[str, Any], now: datetime) -> "AdmissionState":
        """Return the state of an attempt that asks the limiter: since when it waits, and by which limits."""
        # The answer may come late: its instant would put the attempt behind others that came since.
        since = self.slot_since or self.due_at or now
        return replace(self, slot_since=since, limits=limits)

    def with_slot(self, slot: Slot, now: datetime) -> "AdmissionState":
        """Return it with what the limiter granted."""
        return replace(self._with_turn(slot.turn_seconds, now), slot=slot, limits=None)

    def after_refusal(
        self,
        refusal: Refused | BudgetPostponed | SlotPostponed,
        now: datetime,
        comes_at: datetime | None = None,
    ) -> "AdmissionState":
        """Return the state of an attempt that may not start yet: nothing is counted for it twice.

        Args:
            comes_at: When it comes again; None is when the refusal says.
        """
        match refusal:
            case Refused():
                # An operation that a person let past the circuit must still wait for the end of a pause.
                return replace(self._held_up(refusal, comes_at), waiting=True, is_canary=None)
            case BudgetPostponed():
                promised_at = refusal.until if refusal.reserved else None
                return replace(self._held_up(refusal, comes_at), promised_at=promised_at)
            case SlotPostponed():
                return replace(self._with_turn(refusal.turn_seconds, now), ahead=refusal.ahead)
            case _ as never:
                assert_never(never)

    def _held_up(self, refusal: Refused | BudgetPostponed, comes_at: datetime | None) -> "AdmissionState":
        # A turn that it cannot take is void: it would start beside those whose turns come next.
        held_until = max(refusal.until, comes_at or refusal.until)
        turn_at = self.turn_at if self.turn_at is not None and self.turn_at >= held_until else None
        return replace(self, turn_at=turn_at, circuit_key=refusal.limit_key or self.circuit_key)

    def _with_turn(self, turn_seconds: float | None, now: datetime) -> "AdmissionState":
        if turn_seconds is None:
            return self
        turn_at = now + timedelta(seconds=turn_seconds)
        # Where all answers come that late, each turn would be over before it is known.
        has_missed_one = self.turn_at is not None and not is_valid(turn_at, now)
        return replace(self, turn_at=now if has_missed_one else turn_at)

    def without_lease(self) -> "AdmissionState":
        """Return it without permit and slot."""
        return replace(self, permit=None, slot=None, slot_ends_at=None)

    def at_begin(self, now: datetime, attempt_seconds: float) -> "AdmissionState":
        """Return what is valid when the attempt begins, which may have been queued since.

        A lease that ends before the attempt does is void, and no other: another attempt may use its place.
        """
        ends_at = now + timedelta(seconds=attempt_seconds)
        probe_ends_at = None if self.permit is None else self.permit.lease_expires_at
        slot_ends_at = None if self.slot is None or self.slot.lease_id is None else self.slot_ends_at
        valid = self if (probe_ends_at or ends_at) >= ends_at else replace(self, permit=None)
        return valid if (slot_ends_at or ends_at) >= ends_at else replace(valid, slot=None, slot_ends_at=None)


@dataclass(frozen=True, slots=True)
class StepAdmission(JsonShape):
    """What an operation has reached in the admission of a step to another dependency."""

    dependency: str
    admission: AdmissionState = field(default_factory=AdmissionState)


def held_admission(step: StepAdmission | None, dependency: str) -> AdmissionState:
    """Return what an operation has reached at a step's dependency; nothing where another held it up."""
    return AdmissionState() if step is None or step.dependency != dependency else step.admission
