"""What the client raises.

ApiError
  RefusedError        the API answered with a problem, or something else answered
  UnreachableError    there was no answer
OperationFailed       an operation ended as a dead letter, or was cancelled
"""

from __future__ import annotations

import httpx
from pydantic import ValidationError

from durable_retry_client.documents import Operation, Problem


class ApiError(Exception):
    """A request that did not succeed; the base of the two below."""


class RefusedError(ApiError):
    """The API answered with a problem, or something else answered, such as a proxy.

    Attributes:
        answer: The answer.
        status: Its status.
        problem: What it says; None when it is no problem document.
    """

    def __init__(self, answer: httpx.Response) -> None:
        self.answer, self.status = answer, answer.status_code
        self.problem: Problem | None = None
        try:
            self.problem = Problem.model_validate_json(answer.content)
        except ValidationError:
            super().__init__(f"{self.status} {answer.reason_phrase}: not an answer of Durable Retry")
        else:
            listed = "; ".join(f"{mistake.pointer}: {mistake.detail}" for mistake in self.problem.errors)
            super().__init__(": ".join(filter(None, (f"{self.status} {self.problem.detail}", listed))))


class UnreachableError(ApiError):
    """No try got an answer: what was sent may have arrived."""


class OperationFailed(Exception):  # noqa: N818 - said where it is raised: `except OperationFailed`
    """An operation that did not succeed.

        except OperationFailed as failed:
            log.warning("%s: %s, dead letter %s", failed.reason, failed.detail, failed.dead_letter_id)

    Attributes:
        operation: Its last status document.
        status: `dead_lettered` or `cancelled`.
        category: Kind of the failure, such as `malformed`; None of a cancelled operation, as the next two.
        reason: The reason of the dead letter, such as `RetriesExhausted`.
        dead_letter_id: What to replay.
        detail: What went wrong, for a person; "" of a cancelled one.
    """

    def __init__(self, operation: Operation) -> None:
        letter = operation.dead_letter
        self.operation, self.status = operation, operation.status
        self.category = letter.category if letter else None
        self.reason = letter.reason if letter else None
        self.dead_letter_id = letter.id if letter else None
        self.detail = letter.detail if letter else ""
        words = (operation.operation_id, self.status, self.reason, self.detail)
        super().__init__(", ".join(filter(None, words)))
