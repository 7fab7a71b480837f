from durable_retry.features.workflows.rules.keys import workflow_id, workflow_id_for
from durable_retry.rules.operations.keys import is_operation_id


def test_a_batch_and_a_saga_of_one_key_have_ids_of_their_own_which_are_always_the_same() -> None:
    batch, saga = workflow_id_for("batch", "k-1"), workflow_id_for("saga", "k-1")
    assert batch == "batch-sfxpcf5gihwtrmlbtqswiirpgaeqfhaq"
    assert saga.startswith("saga-")
    assert saga.removeprefix("saga-") != batch.removeprefix("batch-")
    assert not is_operation_id(batch)


def test_an_id_that_was_made_is_that_of_no_key() -> None:
    assert workflow_id("batch", "k-1") != workflow_id_for("batch", "k-1")
