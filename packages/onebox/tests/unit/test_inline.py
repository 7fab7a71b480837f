"""What may run on an event loop's own thread."""

from onebox.inline import InlinePolicy


def runs_elsewhere(policy: InlinePolicy, work: str) -> int:
    """Count the runs that are sent elsewhere until the next one may be here."""
    runs = 0
    while not policy.allows(work):
        policy.note_elsewhere(work)
        runs += 1
    return runs


def test_slow_work_runs_elsewhere_twice_as_long_each_time_up_to_a_limit() -> None:
    policy, found = InlinePolicy(0.1), []
    for _ in range(12):
        policy.note("slow", 0.2)
        found.append(runs_elsewhere(policy, "slow"))
    assert found == [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]


def test_one_quick_run_ends_the_penalty() -> None:
    policy = InlinePolicy(0.1)
    for _ in range(3):
        policy.note("uneven", 0.2)
        runs_elsewhere(policy, "uneven")
    policy.note("uneven", 0.1)
    assert policy.allows("uneven")
    policy.note("uneven", 0.2)
    assert runs_elsewhere(policy, "uneven") == 8


def test_slow_work_sends_no_other_work_elsewhere() -> None:
    policy = InlinePolicy(0.1)
    policy.note("slow", 0.2)
    assert not policy.allows("slow")
    assert policy.allows("quick")
