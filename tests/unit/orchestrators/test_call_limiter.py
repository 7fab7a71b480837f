from durable_retry.base.names import SLOT_EVENT
from orchestrators.call_limiter import call_next
from tests.support.builders import NOON, an_operation, failing
from tests.support.stage import Stage


def test_those_that_wait_are_told_of_a_free_slot() -> None:
    given = {"waiters": ["op-b", "op-c"], "dependency": "payments"}
    stage = Stage(an_operation(), failing(0), lambda ctx, _: call_next(ctx, given))
    stage.turn()
    assert stage.sent == [(to, SLOT_EVENT, {"dependency": "payments"}) for to in ("op-b", "op-c")]
    assert stage.now == NOON
