"""The part of the test kit: the questions about an attempt, as `orchestrators.lookup` asks them."""

from dataclasses import replace

from durable_retry.features.lookup.asking import answer_about
from durable_retry.features.lookup.rules import after_question, inquiry_about, is_unknown, question_of
from durable_retry.rules.retry.decide import DeadLetter, Done, Wait
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import after
from durable_retry.runtime import clock
from durable_retry.testing.parts import Play


async def settle(play: Play, outcome: AttemptOutcome) -> AttemptOutcome:
    """Return the outcome of an attempt whose end was unknown; any other as it is."""
    if not is_unknown(outcome):
        return outcome
    operation, inquiry = play.operation, inquiry_about(outcome, clock.now())
    question = question_of(operation, outcome.number)
    while True:
        asked_at = clock.now()
        answer = await answer_about(operation, outcome.number, inquiry.retry.history.next_attempt)
        state, action = after(question, inquiry.retry, answer, clock.now())
        assert isinstance(action, Wait | Done | DeadLetter)  # noqa: S101 - no circuit, so no probe
        inquiry = replace(inquiry, retry=state)
        follows = after_question(operation, outcome, inquiry, action, asked_at=asked_at, now=clock.now())
        if isinstance(follows, AttemptOutcome):
            return follows
        inquiry, wait = follows
        play.wait(wait)
