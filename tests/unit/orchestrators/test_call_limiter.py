from durable_retry.base.names import SLOT_EVENT
from orchestrators.call_limiter import call_next
from tests.support.builders import NOON, an_operation, failing
from tests.support.stage import Stage


def test_one_that_waits_is_told_of_a_free_slot() -> None:
    given = {"waiter": "op-b", "dependency": "payments"}
    stage = Stage(an_operation(), failing(0), lambda ctx, _: call_next(ctx, given))
    stage.turn()
    assert stage.sent == [("op-b", SLOT_EVENT, {"dependency": "payments"})]
    assert stage.now == NOON
