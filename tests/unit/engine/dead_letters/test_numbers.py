"""What groups of dead letters are counted as, and show."""

from durable_retry.engine.base.names import Category, DeadLetterReason
from durable_retry.engine.dead_letters.cause import Cause, CauseStatus
from durable_retry.engine.dead_letters.numbers import DeadLetterGroup, DeadLetterSample
from tests.support.builders import NOON, after

GROUP = DeadLetterGroup(
    group="g-1",
    count=2,
    first_seen_at=NOON,
    last_seen_at=after(60),
    sample=DeadLetterSample(
        id="dl-1",
        dependency="payments",
        category=Category.TRANSIENT,
        reason=DeadLetterReason.RETRIES_EXHAUSTED,
        detail="503",
    ),
)


def test_a_group_shows_what_people_did_about_its_cause() -> None:
    cause = Cause(group="g-1").resolved(after(30), "ada").noted("mended", NOON, "ada")
    shown = GROUP.with_cause(cause)
    assert (shown.status, shown.came_back) == (CauseStatus.NEW, True)
    assert (shown.resolved_by, shown.notes[0].text) == ("ada", "mended")


def test_a_group_that_nobody_has_looked_into_is_new() -> None:
    assert GROUP.with_cause(None) is GROUP
    assert (GROUP.status, GROUP.came_back) == (CauseStatus.NEW, False)
