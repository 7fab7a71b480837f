"""The commit of a success: what is made durable in one transaction, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.operations.idempotency import Life


@dataclass(frozen=True, slots=True, kw_only=True)
class Success(JsonShape):
    """The input of the activity `commit`."""

    operation_id: str
    life: Life  # of its run
    result: Any = None
    writes: tuple[Any, ...]  # of the handler, see `stores.operations.writes`
    events: tuple[Any, ...]  # of the handler and of the operation's `on_success`
    correlation_id: str | None = None
    trace: TraceContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(JsonShape):
    """The answer of the activity `commit`."""

    # The run under whose name it was committed: another start of the same life may have come first.
    run_id: str
    events: tuple[Mapping[str, Any], ...] = ()  # as the status document shows them
    rejected: str | None = None  # why the writes can never be made; None when they are
