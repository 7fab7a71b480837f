from collections import Counter
from itertools import pairwise

from durable_retry.features.retention.walks import BOUNDS
from durable_retry.rules.operations.keys import operation_id_for


def test_each_part_has_as_many_operations_as_the_others() -> None:
    bounds = list(pairwise(BOUNDS))
    parts: Counter[int] = Counter()
    for number in range(4_000):
        operation_id = operation_id_for("scope", f"key-{number}")
        parts.update(
            shard
            for shard, (after, before) in enumerate(bounds)
            if (after or "") < operation_id and (before is None or operation_id < before)
        )
    assert parts.total() == 4_000
    assert all(900 < parts[shard] < 1_100 for shard in range(len(bounds)))
