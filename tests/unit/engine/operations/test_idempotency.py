"""Scoped keys, ids and the record behind a key."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.operations.envelope import EnvelopeName
from durable_retry.engine.operations.idempotency import (
    RECORD_MOVES,
    Claim,
    ClaimAnswer,
    ClaimRequest,
    KeyCompletion,
    KeyRecord,
    KeyRecordMove,
    KeyRecordState,
    _checked_move,
    claim,
    complete,
    expire,
    removes_itself,
    state_of,
)
from durable_retry.engine.operations.naming import (
    envelope_key,
    explicit_scope,
    fields_name,
    is_operation_id,
    operation_id_for,
    source_name,
)
from durable_retry.engine.operations.request import parse_key, parse_operation
from tests.support.builders import NOON, after

DAY = timedelta(days=1)
BODY: dict[str, Any] = {
    "dependency": "payments",
    "request": {"method": "GET", "json": {"order": 1, "note": "a"}},
}


def is_a_key(key: str) -> bool:
    """Holds a key to what a caller may choose, and so to what the header downstream carries."""
    return parse_operation(BODY | {"key": key}).key == key


def test_what_joins_source_and_id_is_no_part_of_either() -> None:
    names = [EnvelopeName("a#b", "c"), EnvelopeName("a", "b#c"), EnvelopeName("a%23b", "c")]
    assert len({envelope_key(name).key for name in names}) == 3


def test_a_long_name_is_hashed() -> None:
    key = source_name("kafka", "orders", "x" * 300).key
    assert key.startswith("sha256-")
    assert is_a_key(key)


def test_names_of_different_kinds_never_meet() -> None:
    scopes = {
        explicit_scope(""),
        explicit_scope("tenant"),
        envelope_key(EnvelopeName("s", "i")).scope,
        envelope_key(EnvelopeName("s", "i"), "tenant").scope,
        source_name("queue", "operations", "i").scope,
        source_name("queue", "other", "i").scope,
        fields_name(BODY, ["/dependency"]).scope,
    }
    assert len(scopes) == 7


def test_fields_name_a_payload_whatever_their_order() -> None:
    again = {"request": {"json": {"note": "b", "order": 1.0}, "method": "GET"}, "dependency": "payments"}
    pointers = ["/request/json/order", "/dependency"]
    assert fields_name(BODY, pointers) == fields_name(again, reversed(pointers))
    assert fields_name(BODY, pointers) != fields_name(BODY, ["/request/json/order"])
    assert fields_name(BODY, ["/request/json/note"]) != fields_name(again, ["/request/json/note"])


def test_a_field_that_is_missing_is_reported() -> None:
    with pytest.raises(InvalidInputError) as caught:
        fields_name(BODY, ["/request/json/order", "/request/json/nothing"])
    assert [problem.pointer for problem in caught.value.problems] == ["/request/json/nothing"]


OWNED = {ClaimAnswer.CLAIMED, ClaimAnswer.TAKEN_OVER}

DONE = {"status": "succeeded", "operation_id": "op-1"}
DEAD = {"status": "dead_lettered", "operation_id": "op-1"}


def claimed(record: KeyRecord | None = None, *, at: float = 0, **changes: Any) -> Claim:
    wanted: dict[str, Any] = {"owner": "one", "fingerprint": "f", "now": after(at)} | changes
    return claim(record, ClaimRequest(**wanted))


def completed(record: KeyRecord | None, *, at: float = 0, **changes: Any) -> KeyRecord:
    wanted: dict[str, Any] = {
        "owner": "one",
        "fingerprint": "f",
        "document": DONE,
        "now": after(at),
        "ttl_seconds": 60,
    } | changes
    return complete(record, KeyCompletion(**wanted))


IN_PROGRESS = claimed().record
COMPLETED = completed(IN_PROGRESS)


def test_the_id_is_the_same_everywhere() -> None:
    assert operation_id_for("explicit", "evt-1") == "op-j4ou3b324etvaioxnislgrfopf5ppob3"


def test_the_id_is_short_and_safe_in_a_url() -> None:
    assert re.fullmatch(r"op-[a-z2-7]{32}", operation_id_for("s", "k" * 255))


def test_scopes_and_keys_cannot_be_shifted_into_each_other() -> None:
    assert operation_id_for("ab", "c") != operation_id_for("a", "bc")


def test_an_operations_id_is_distinguished_from_other_ids() -> None:
    assert is_operation_id(operation_id_for("s", "k"))
    others = ["", "op-", "batch-abc", "saga-abc", "op-a@b", "op-a.b", "@x@op-a", "op-a\n"]
    assert [text for text in others if is_operation_id(text)] == []


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("evt-1", "evt-1"),
        ('"evt-1"', "evt-1"),
        (' "a\\"b\\\\c" ', 'a"b\\c'),
        ('a"b', 'a"b'),
        ("x" * 255, "x" * 255),
    ],
)
def test_a_key_is_a_quoted_string_or_bare(header: str, key: str) -> None:
    assert parse_key(header) == key


@pytest.mark.parametrize(
    "header", ["", '""', "a b", '"a b"', '"a', 'x"\x7f', "é", "x" * 256, '"a\\n"', '"a";p=1']
)
def test_a_key_that_is_neither_is_refused(header: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_key(header)


def test_an_absent_record_is_claimed() -> None:
    claim_ = claimed()
    assert claim_.answer is ClaimAnswer.CLAIMED
    assert claim_.answer in OWNED
    assert claim_.record == KeyRecord(
        state=KeyRecordState.IN_PROGRESS,
        owner="one",
        fingerprint="f",
        claimed_at=NOON,
        run=round(NOON.timestamp() * 1000),
    )


def test_a_key_used_again_after_its_record_was_deleted_gets_a_higher_run_number() -> None:
    gone = expire(COMPLETED, now=after(60))
    assert gone is None
    assert claimed(gone, at=61).record.run > COMPLETED.run


@pytest.mark.parametrize("behind", [0, 3_600])
def test_a_run_number_grows_although_the_clock_of_a_machine_is_behind(behind: float) -> None:
    dead = completed(IN_PROGRESS, document=DEAD)
    replayed = claimed(dead, owner="one.dl-1", at=-behind, replay=True)
    assert replayed.answer in OWNED
    assert replayed.record.run > dead.run


def test_the_same_start_that_claims_again_keeps_its_run_number() -> None:
    first = claimed(accepted_at=NOON).record
    again = claimed(first, at=10, accepted_at=NOON)
    assert (again.answer, again.record.run) == (ClaimAnswer.CLAIMED, first.run)


def test_a_claim_whose_state_was_lost_gets_the_same_number_again() -> None:
    first = claimed(accepted_at=NOON, at=1)
    assert claimed(accepted_at=NOON, at=20).record.run == first.record.run


def test_the_end_of_a_replay_whose_claim_was_lost_is_kept() -> None:
    dead = completed(IN_PROGRESS, document=DEAD)
    claim_ = claimed(dead, owner="one.dl-1", replay=True, at=1, accepted_at=after(1))
    ended = completed(dead, owner="one.dl-1", run=claim_.record.run, at=5)
    assert (ended.document, ended.owner, ended.expires_at) == (DONE, "one.dl-1", after(65))
    # The lost claim comes again.
    assert claimed(ended, owner="one.dl-1", replay=True, at=9, accepted_at=after(1)).record == ended


def test_an_end_that_upkeep_saw_completes_no_claim_that_was_made_since() -> None:
    seen = claimed(accepted_at=NOON).record
    end = {"owner": "one.dl-1", "run": seen.run + 1}  # The claim of its run was lost.
    assert completed(seen, at=5, **end).document == DONE
    since = claimed(seen, owner="one.dl-2", replay=True, at=4, accepted_at=after(4)).record
    assert completed(since, at=5, **end) == since


def test_another_start_of_the_owner_waits_for_the_completion_of_the_one_before() -> None:
    first = claimed(accepted_at=NOON).record
    second = claimed(first, at=10, accepted_at=after(9))
    assert second.answer is ClaimAnswer.IN_PROGRESS
    ended = completed(second.record, at=11, run=first.run)
    assert claimed(ended, at=40, accepted_at=after(9)).answer is ClaimAnswer.FINISHED


def test_another_start_of_the_owner_takes_over_when_no_completion_comes() -> None:
    first = claimed(accepted_at=NOON).record
    waiting = claimed(first, at=10, accepted_at=after(9)).record
    waiting = claimed(waiting, at=39, accepted_at=after(9)).record
    second = claimed(waiting, at=40, accepted_at=after(9))
    assert second.answer is ClaimAnswer.TAKEN_OVER
    assert second.record.run > first.run
    late = completed(second.record, at=41, run=first.run)
    assert late == second.record


@pytest.mark.parametrize("has_ended", [False, True])
def test_the_claim_of_a_replay_that_is_over_takes_nothing_from_the_replay_after_it(
    *, has_ended: bool
) -> None:
    first = {"owner": "op-1.dl-1", "replay": True, "accepted_at": after(10)}
    second = {"owner": "op-1.dl-2", "replay": True, "accepted_at": after(20)}
    held = claimed(completed(claimed(at=1).record, at=2, document=DEAD), at=20, **second).record
    if has_ended:
        held = completed(held, at=21, owner="op-1.dl-2", document=DEAD)
    again = claimed(held, at=22, **first)
    assert (again.answer, again.record.owner) == (ClaimAnswer.IN_PROGRESS, "op-1.dl-2")
    assert again.record.document == held.document


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_replay_that_was_accepted_by_a_clock_behind_gets_the_key_when_it_claims_again(
    *,
    has_ended: bool,
) -> None:
    behind = {"owner": "op-1.dl-2", "replay": True, "accepted_at": after(-10)}
    held = claimed(at=1, owner="op-1.dl-1", accepted_at=after(0)).record
    if has_ended:
        held = completed(held, at=2, owner="op-1.dl-1", document=DEAD)
    waits = claimed(held, at=3, **behind)
    assert waits.answer is ClaimAnswer.IN_PROGRESS
    later = claimed(waits.record, at=33, **behind)
    assert (later.answer in OWNED, later.record.owner) == (True, "op-1.dl-2")
    assert later.record.run > held.run


def test_records_and_completions_of_older_versions_have_no_run_number() -> None:
    older = {name: value for name, value in IN_PROGRESS.to_json().items() if name != "run"}
    assert KeyRecord.from_json(older).run == 1
    assert completed(IN_PROGRESS, run=None).state is KeyRecordState.COMPLETED
    assert completed(KeyRecord.from_json(older), run=IN_PROGRESS.run).state is KeyRecordState.COMPLETED


def test_the_owner_may_claim_again() -> None:
    again = claimed(IN_PROGRESS, at=10)
    assert again.answer is ClaimAnswer.CLAIMED
    assert (again.record.claimed_at, again.record.run) == (after(10), IN_PROGRESS.run)


def test_another_owner_has_to_wait() -> None:
    assert claimed(IN_PROGRESS, owner="two", at=29) == Claim(IN_PROGRESS, ClaimAnswer.IN_PROGRESS)
    assert claimed(IN_PROGRESS, owner="two", at=10**6) == Claim(IN_PROGRESS, ClaimAnswer.IN_PROGRESS)


def test_a_record_that_an_older_version_stored_with_a_lease_can_be_read() -> None:
    assert KeyRecord.from_json(IN_PROGRESS.to_json() | {"lease_until": None}) == IN_PROGRESS


@pytest.mark.parametrize("record", [IN_PROGRESS, COMPLETED])
def test_another_request_under_the_key_is_refused(record: KeyRecord) -> None:
    assert claimed(record, fingerprint="other") == Claim(record, ClaimAnswer.MISMATCH)


def test_a_finished_record_answers() -> None:
    assert claimed(COMPLETED, owner="two", at=59) == Claim(COMPLETED, ClaimAnswer.FINISHED)
    assert claimed(COMPLETED, at=59).answer not in OWNED


def test_an_expired_record_counts_as_absent_before_it_is_dropped() -> None:
    assert state_of(COMPLETED, after(60)) is KeyRecordState.ABSENT
    assert claimed(COMPLETED, owner="two", fingerprint="other", at=60).answer is ClaimAnswer.CLAIMED


def test_a_start_that_was_accepted_after_the_expiry_claims_although_the_claims_clock_is_behind() -> None:
    late = claimed(COMPLETED, owner="two", fingerprint="other", at=58, accepted_at=after(60))
    assert late.answer is ClaimAnswer.CLAIMED
    early = claimed(COMPLETED, owner="two", at=58, accepted_at=after(59))
    assert early.answer is ClaimAnswer.FINISHED


def test_a_replay_opens_a_dead_letter_again_even_edited() -> None:
    dead = completed(IN_PROGRESS, document=DEAD)
    assert claimed(dead, owner="replay", fingerprint="edited", replay=True).answer in OWNED
    assert claimed(dead, owner="replay").answer is ClaimAnswer.FINISHED


def test_a_replay_does_not_open_a_success_or_a_running_operation() -> None:
    assert claimed(COMPLETED, owner="replay", replay=True).answer is ClaimAnswer.FINISHED
    assert claimed(IN_PROGRESS, owner="replay", replay=True).answer is ClaimAnswer.IN_PROGRESS


def test_a_replay_takes_the_claim_over_from_the_run_before_it_even_edited() -> None:
    first = claimed(owner="op-1").record
    taken = claimed(first, owner="op-1.dl-1", fingerprint="edited", replay=True)
    assert (taken.answer, taken.record.owner) == (ClaimAnswer.TAKEN_OVER, "op-1.dl-1")


def test_what_an_earlier_run_says_of_its_end_comes_too_late() -> None:
    replaying = claimed(claimed(owner="op-1").record, owner="op-1.dl-1", replay=True).record
    assert completed(replaying, owner="op-1", document=DEAD) == replaying
    assert completed(replaying, owner="op-1.dl-1").document == DONE


def test_a_new_run_of_an_instance_that_was_ended_by_hand_need_not_wait() -> None:
    replaying = claimed(owner="op-1.dl-1").record
    assert claimed(replaying, owner="op-1").answer in OWNED
    assert claimed(replaying, owner="op-1", fingerprint="other").answer is ClaimAnswer.MISMATCH


def test_a_replay_is_carried_out_once() -> None:
    replaying = claimed(completed(IN_PROGRESS, document=DEAD), owner="one.dl-1", replay=True).record
    failed = completed(replaying, owner="one.dl-1", document=DEAD)
    assert claimed(failed, owner="one.dl-1", replay=True).answer is ClaimAnswer.FINISHED
    assert claimed(failed, owner="one.dl-2", replay=True).answer in OWNED


def test_a_replay_started_once_more_while_its_first_end_is_under_way_makes_no_attempts() -> None:
    """Nobody answered the first start, so a person replays the dead letter again, under the same owner."""
    dead = completed(IN_PROGRESS, document=DEAD)
    first = claimed(dead, owner="one.dl-1", replay=True, at=1, accepted_at=after(1)).record
    second = claimed(first, owner="one.dl-1", replay=True, at=10, accepted_at=after(9))
    assert second.answer is ClaimAnswer.IN_PROGRESS
    ended = completed(second.record, owner="one.dl-1", document=DEAD, at=11, run=first.run)
    again = claimed(ended, owner="one.dl-1", replay=True, at=40, accepted_at=after(9))
    assert again.answer is ClaimAnswer.FINISHED


def test_a_replay_whose_first_end_never_comes_takes_over_and_the_first_run_may_write_no_more() -> None:
    dead = completed(IN_PROGRESS, document=DEAD)
    first = claimed(dead, owner="one.dl-1", replay=True, at=1, accepted_at=after(1)).record
    waiting = claimed(first, owner="one.dl-1", replay=True, at=10, accepted_at=after(9)).record
    second = claimed(waiting, owner="one.dl-1", replay=True, at=40, accepted_at=after(9))
    assert (second.answer, second.record.run > first.run) == (ClaimAnswer.TAKEN_OVER, True)
    late = completed(second.record, owner="one.dl-1", document=DEAD, at=41, run=first.run)
    assert late == second.record


def test_completing_keeps_the_document_for_its_time() -> None:
    assert COMPLETED.state is KeyRecordState.COMPLETED
    assert COMPLETED.document == DONE
    assert COMPLETED.expires_at == after(60)


def test_completing_twice_keeps_the_first_document() -> None:
    assert completed(COMPLETED, document=DEAD) == COMPLETED


def test_an_owner_whose_claim_was_taken_over_completes_nothing() -> None:
    taken = claimed(claimed(owner="op-1.dl-1").record, owner="op-1", at=30).record
    assert completed(taken, owner="op-1.dl-1") == taken


@pytest.mark.parametrize(("record", "at"), [(None, 0), (COMPLETED, 60)])
def test_completing_what_was_lost_still_keeps_the_document(record: KeyRecord | None, at: float) -> None:
    kept = completed(record, at=at, owner="two", fingerprint="g", document=DEAD)
    assert (kept.document, kept.owner, kept.fingerprint, kept.claimed_at) == (DEAD, "two", "g", after(at))


def test_a_record_expires_when_its_time_is_over_and_not_before() -> None:
    assert expire(COMPLETED, now=after(59)) == COMPLETED
    assert expire(COMPLETED, now=after(60)) is None
    assert expire(IN_PROGRESS, now=after(10**6)) == IN_PROGRESS
    assert expire(None, now=NOON) is None


def test_illegal_moves_cannot_be_made() -> None:
    with pytest.raises(AssertionError, match="cannot claim from completed"):
        _checked_move(KeyRecordState.COMPLETED, KeyRecordMove.CLAIM, IN_PROGRESS)


def test_only_an_expired_record_becomes_absent() -> None:
    ends = {move for (_, move), end in RECORD_MOVES.items() if end is KeyRecordState.ABSENT}
    assert ends == {KeyRecordMove.EXPIRE}


@pytest.mark.parametrize("record", [IN_PROGRESS, COMPLETED])
def test_json_round_trips(record: KeyRecord) -> None:
    assert KeyRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("ttl", "age", "history_for", "expected"),
    [
        (DAY, timedelta(0), 7 * DAY, False),
        (30 * DAY, timedelta(0), 7 * DAY, False),
        (DAY, timedelta(0), None, True),
        (timedelta(minutes=59), timedelta(0), 7 * DAY, True),
        (timedelta(hours=1), timedelta(0), 7 * DAY, False),
        (DAY, 7 * DAY - timedelta(hours=1), 7 * DAY, False),
        (DAY, 7 * DAY - timedelta(minutes=59), 7 * DAY, True),
    ],
)
def test_a_record_ends_itself_where_retention_would_not(
    ttl: timedelta, age: timedelta, history_for: timedelta | None, expected: object
) -> None:
    for accepted_at in (None, NOON - age):
        claimed_at = NOON - age if accepted_at is None else NOON
        record = KeyRecord(
            state=KeyRecordState.COMPLETED,
            owner="o",
            fingerprint="f",
            claimed_at=claimed_at,
            accepted_at=accepted_at,
            expires_at=NOON + ttl,
        )
        assert removes_itself(record, NOON, history_for) is expected
    assert removes_itself(replace(record, expires_at=None), NOON, history_for)
