from typing import Final

from tests.fault.app.crash.flow import Flow
from tests.fault.app.crash.item_flows import Batch, Large, Outbox, Refused, Saga
from tests.fault.app.crash.letter_flows import (
    Archived,
    BulkArchived,
    BulkReplay,
    EventReplayed,
    Resent,
    SingleReplay,
)

DEPENDENCIES: Final = """
[defaults.circuit]
enabled = false

[defaults.retry_budget]
ratio = 0

[defaults.retry]
strategy = "fixed"
initial_seconds = 0.05
jitter = "none"
max_attempts = 2

# Longer than histories are kept: each end completes a record.
[defaults.idempotency]
ttl_seconds = 604800

[defaults.timeouts]
connect_seconds = 20
attempt_seconds = 30

[dependencies.flaky]
base_url = "${FLAKY_TARGET_URL}"

# Nobody listens on port 1. The wait is longer than a slow commit: the timer of a retry must be waited for.
[dependencies.absent]
base_url = "http://127.0.0.1:1"
retry = { initial_seconds = 2.0 }
"""

MOST_PER_FLOW: Final = 60


def dependencies() -> str:
    """Each subject of a bulk action has a dependency of its own, which is what its filter asks for."""
    names = [f"{flow}-{number}" for flow in ("bulk", "tidied") for number in range(MOST_PER_FLOW)]
    return DEPENDENCIES + "".join(
        f'\n[dependencies.{name}]\nbase_url = "${{FLAKY_TARGET_URL}}"\n' for name in names
    )


FLOWS: Final[tuple[Flow, ...]] = (
    Outbox(),
    Large(),
    Refused(),
    Saga(),
    Batch(),
    SingleReplay(),
    BulkReplay(),
    Archived(),
    BulkArchived(),
    Resent(),
    EventReplayed(),
)


def flow_of(subject: str) -> Flow:
    """The flow that a subject is called after."""
    (flow,) = (flow for flow in FLOWS if flow.name == subject.partition("-")[0])
    return flow
