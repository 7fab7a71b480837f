"""What people do about a root cause."""

from dataclasses import replace

import pytest

from durable_retry.features.dead_letter_lists.counts import Tally
from durable_retry.rules.dead_letters.record import MAX_NOTES, FullError, of_operation
from durable_retry_console.causes.shapes import Cause, CauseStatus, DeadLetterGroup, DeadLetterSample
from tests.support.builders import NOON, after, an_entry

NEW = Cause(group="g-1")


def test_a_cause_is_new_until_somebody_looks_into_it() -> None:
    assert NEW.status(NOON) is CauseStatus.NEW
    taken = NEW.acknowledged(NOON, "ada")
    assert (taken.status(after(60)), taken.acknowledged_by) == (CauseStatus.ACKNOWLEDGED, "ada")


def test_a_cause_is_resolved_until_it_comes_back() -> None:
    mended = NEW.acknowledged(NOON, "ada").resolved(after(60), "bob")
    assert (mended.status(after(60)), mended.came_back(after(60))) == (CauseStatus.RESOLVED, False)
    assert (mended.status(after(61)), mended.came_back(after(61))) == (CauseStatus.NEW, True)


def test_one_that_came_back_says_so_while_somebody_looks_into_it_and_until_it_is_resolved_again() -> None:
    taken = NEW.resolved(NOON, None).acknowledged(after(60), "ada")
    assert (taken.status(after(30)), taken.came_back(after(30))) == (CauseStatus.ACKNOWLEDGED, True)
    mended = taken.resolved(after(90), "ada")
    assert (mended.status(after(30)), mended.came_back(after(30))) == (CauseStatus.RESOLVED, False)


def test_a_cause_takes_a_bounded_number_of_notes() -> None:
    cause = NEW
    for number in range(MAX_NOTES):
        cause = cause.noted(str(number), NOON, "ada")
    assert (cause.notes[0].text, cause.notes[-1].by) == ("0", "ada")
    with pytest.raises(FullError):
        cause.noted("one more", NOON, None)


def test_a_cause_is_read_as_it_was_written() -> None:
    cause = NEW.acknowledged(NOON, "ada").noted("why", NOON, None)
    assert Cause.from_json(cause.to_json()) == cause


LATEST = of_operation(an_entry("op-1"), after(60))
OPEN = Tally(2, NOON, after(60), LATEST.id)


def test_a_group_shows_what_people_did_about_its_cause() -> None:
    cause = NEW.resolved(after(30), "ada").noted("mended", NOON, "ada")
    shown = DeadLetterGroup.of(cause, OPEN, LATEST)
    assert (shown.status, shown.came_back) == (CauseStatus.NEW, True)
    assert (shown.resolved_by, shown.notes[0].text) == ("ada", "mended")


def test_a_group_that_nobody_has_looked_into_is_new() -> None:
    shown = DeadLetterGroup.of(NEW, OPEN, LATEST)
    assert (shown.group, shown.count, shown.sample.id) == ("g-1", 2, LATEST.id)
    assert (shown.first_seen_at, shown.last_seen_at) == (NOON, after(60))
    assert (shown.status, shown.came_back) == (CauseStatus.NEW, False)


def test_the_sample_of_a_group_keeps_the_beginning_of_the_detail() -> None:
    record = replace(of_operation(an_entry("op-1"), NOON), detail="x" * 1_000)
    sample = DeadLetterSample.of(record)
    assert (sample.id, sample.dependency, sample.detail) == (record.id, "payments", "x" * 300)
    assert "unreadable" not in sample.model_dump()
