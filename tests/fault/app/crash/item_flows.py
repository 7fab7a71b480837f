from collections.abc import Iterable
from typing import Any, Final

from durable_retry.features.workflows.routes import submit_batch, submit_saga
from durable_retry.intake.routes import submit_operation
from durable_retry.rules.operations.keys import operation_id_for
from tests.fault.app.crash.flow import QUEUE, Expected, Flow, accepted, body, operation_id
from tests.fault.app.crash.small_app import SmallApp


class Outbox(Flow):
    """A success with three events: the second one's target is down."""

    name = "outbox"

    async def ask(self, app: SmallApp, subject: str) -> None:
        events = [
            {"type": "first", "queue": QUEUE, "data": subject},
            {"type": "second", "dependency": "absent", "path": "/hook", "data": subject},
            {"type": "third", "queue": QUEUE, "data": subject},
        ]
        await accepted(submit_operation, app, body(subject, on_success=events))

    def expected(self, subject: str) -> Expected:
        one = operation_id(subject)
        return Expected(
            operations={one: "succeeded"},
            events={f"{one}.1": "sent", f"{one}.2": "failed", f"{one}.3": "sent"},
            queued={f"{one}.1", f"{one}.3"},
            letters={(f"{one}.2", "OutboxUndeliverable"): "open"},
        )


class Large(Flow):
    """A success whose result is stored apart from its history."""

    name = "large"

    async def ask(self, app: SmallApp, subject: str) -> None:
        asked = body(subject)
        await accepted(submit_operation, app, asked | {"request": asked["request"] | {"json": "x" * 6_000}})

    def expected(self, subject: str) -> Expected:
        return Expected(operations={operation_id(subject): "succeeded"})


class Refused(Flow):
    """An operation that becomes a dead letter."""

    name = "refused"

    async def ask(self, app: SmallApp, subject: str) -> None:
        await accepted(submit_operation, app, body(subject, "/status/422"))

    def expected(self, subject: str) -> Expected:
        return Expected(
            operations={operation_id(subject): "dead_lettered"},
            letters={(subject, "RejectedByDependency"): "open"},
        )


class Saga(Flow):
    """Three steps, of which the last fails; undoing the first one fails too."""

    name = "saga"
    _ENDS: Final = {
        "do-a": "succeeded",
        "do-b": "succeeded",
        "do-c": "dead_lettered",
        "undo-b": "succeeded",
        "undo-a": "dead_lettered",
    }

    async def ask(self, app: SmallApp, subject: str) -> None:
        def part(name: str) -> dict[str, Any]:
            fails = self._ENDS[name] == "dead_lettered"
            return body(f"{subject}-{name}", "/status/422" if fails else "/echo")

        steps = [
            {"name": name, "operation": part(f"do-{name}"), "compensation": part(f"undo-{name}")}
            for name in "ab"
        ]
        steps.append({"name": "c", "operation": part("do-c")})
        await accepted(submit_saga, app, {"steps": steps}, **{"Idempotency-Key": subject})

    def parts(self, subject: str) -> Iterable[str]:
        return [operation_id(f"{subject}-{name}") for name in self._ENDS]

    def expected(self, subject: str) -> Expected:
        return Expected(
            operations={operation_id(f"{subject}-{name}"): end for name, end in self._ENDS.items()},
            letters={
                (f"{subject}-do-c", "RejectedByDependency"): "open",
                (f"{subject}-undo-a", "CompensationFailed"): "open",
            },
        )


class Batch(Flow):
    """Four items: one cannot be an operation, one is refused."""

    name = "batch"

    async def ask(self, app: SmallApp, subject: str) -> None:
        items = [
            body(f"{subject}-0"),
            {"dependency": "flaky", "key": f"{subject}-1"},
            body(f"{subject}-2", "/status/422"),
            body(f"{subject}-3"),
        ]
        asked = {"items": items, "max_concurrency": 2}
        await accepted(submit_batch, app, asked, **{"Idempotency-Key": subject})

    def parts(self, subject: str) -> Iterable[str]:
        # Known before the batch is asked for: its first step can run before the caller has an answer.
        return [self.batch_id(subject), *(operation_id(f"{subject}-{number}") for number in range(4))]

    def expected(self, subject: str) -> Expected:
        ends = {0: "succeeded", 2: "dead_lettered", 3: "succeeded"}
        return Expected(
            operations={operation_id(f"{subject}-{number}"): end for number, end in ends.items()},
            letters={
                (f"{self.batch_id(subject)}.1", "ValidationFailed"): "open",
                (f"{subject}-2", "RejectedByDependency"): "open",
            },
            batches={self.batch_id(subject): [ends.get(number, "dead_lettered") for number in range(4)]},
        )

    def batch_id(self, subject: str) -> str:
        return "batch-" + operation_id_for("batch:", f"given:{subject}").removeprefix("op-")
