"""What is held by its policy, and until when."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from durable_retry.base.json_forms import instant_in
from durable_retry.base.names import PAUSE_EVENT, DeadLetterReason, OperationState
from durable_retry.base.text import cut_text
from durable_retry.rules.retry.decide import DeadLetter
from durable_retry.rules.retry.policy import HOLD_SECONDS, RetryPolicy

BY_POLICY: Final = "the policy"
"""Stands for the person in a pause that a policy makes."""

_EXHAUSTED: Final = frozenset({DeadLetterReason.RETRIES_EXHAUSTED, DeadLetterReason.DEADLINE_EXCEEDED})
"""Reasons for which more attempts or more time may help, unlike a refusal or an unknown end."""

_REASON_CHARS: Final = 200


def held_until(policy: RetryPolicy, letter: DeadLetter, now: datetime) -> datetime | None:
    """Return until when an operation is held in place of a dead letter; None where it is not."""
    if letter.reason not in _EXHAUSTED:
        return None
    return now + timedelta(seconds=policy.hold_seconds or HOLD_SECONDS)


def pause_in_place_of(letter: DeadLetter) -> dict[str, Any]:
    """Return the request for a pause that holds an operation in place of a dead letter."""
    reason = cut_text(f"{letter.reason.value}: {letter.detail}", _REASON_CHARS)
    return {"by": BY_POLICY, "reason": reason}


def held_since(status: Mapping[str, Any]) -> datetime | None:
    """Return since when its policy holds an operation, by its custom status; None where it does not."""
    actions = status.get("actions")
    last = actions[-1] if isinstance(actions, list) and actions else {}
    is_held = (status.get("status"), last.get("action"), last.get("by")) == (
        OperationState.PAUSED,
        PAUSE_EVENT,
        BY_POLICY,
    )
    return instant_in(last, "at") if is_held else None
