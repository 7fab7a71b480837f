"""Operations of the app's own code: the fields that it submits, and the result or error that it gets."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypedDict

from durable_retry.base.documents import MalformedJsonError, read_json, size_problem
from durable_retry.base.foreign import plain_json
from durable_retry.base.names import OperationState
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.plugins import hook
from durable_retry.rules.operations.completion import MASKED, is_masked_at
from durable_retry.rules.operations.request import FollowUp
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import app_settings, registered_handlers


class Declared[**P, R](Protocol):
    """A function that `durable_retry.operation` declared."""

    def __operation__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Never called: it shows what an operation of it takes and results in."""


class OperationFields(TypedDict, total=False):
    """The body of an operation; what is left out has the meaning of the API.

    Attributes:
        dependency: The one whose policy and circuit it uses; with `request`.
        request: `method` (POST when left out), `path`, `query`, `headers`, `json` or `body`.
        handler: In place of both, the name of a handler.
        input: For the handler, any JSON.
        key: The key of the operation, 1 to 255 visible ASCII characters.
        correlation_id: Name of the wider piece of work.
        deadline_seconds: For the whole operation; 0 for none.
        start_at: When it begins, as RFC 3339; at most a year ahead.
        delay_seconds: Begin so much after it was accepted, in place of `start_at`.
        order_key: Operations of one order key run one after the other.
        order_on_failure: `block` or `skip`: what those behind it do when it ends as a dead letter.
        priority: `high`, `normal` or `low`, where operations wait.
        limit_key: Whose share of the dependency's limits it uses, such as a customer.
        debounce_key: A later operation with it replaces this one while it waits; with `debounce_seconds`.
        debounce_seconds: How long it waits for a later one.
        debounce_max_seconds: For how long it and those that it replaced wait at most.
        retry: Changes of the dependency's policy.
        when_open: `wait` or `refuse`, where the circuit is open already.
        fallback: Another dependency, which is asked while the circuit of the first is open.
        poll: How a 202 is followed: changes of the dependency's.
        on_success: Events to send when it succeeds.
        on_failure: Events to send when it becomes a dead letter, which they describe.
        on_recovered: Events to send when it succeeds after trouble.
    """

    dependency: str
    request: Mapping[str, Any]
    handler: str
    input: Any
    key: str
    correlation_id: str
    deadline_seconds: float
    start_at: str
    delay_seconds: float
    order_key: str
    order_on_failure: str
    priority: str
    limit_key: str
    debounce_key: str
    debounce_seconds: float
    debounce_max_seconds: float
    retry: Mapping[str, Any]
    when_open: str
    fallback: str
    poll: Mapping[str, Any]
    on_success: Iterable[Mapping[str, Any] | FollowUp]
    on_failure: Iterable[Mapping[str, Any] | FollowUp]
    on_recovered: Iterable[Mapping[str, Any] | FollowUp]


_OPTIONS: Final = OperationFields.__annotations__.keys() - {
    *("dependency", "request", "poll"),
    *("handler", "input"),
}
"""What may stand beside the arguments of a function."""


def operation_document(
    function: Callable[..., Any] | str | None, args: tuple[Any, ...], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the body of an operation as JSON.

    Args:
        function: Declared by `operation`, or its name; None when `fields` say it all.
        args: For the function.
        fields: See `OperationFields`; of a function its keyword arguments and the fields beside them.

    Raises:
        LookupError: The function is not declared.
        InvalidInputError: The arguments are not those of the function.
    """
    if function is not None:
        handler = imported(f"{hook('handlers')}.registry:handler_of")(function)
        kwargs = {name: value for name, value in fields.items() if name not in _OPTIONS}
        call = {"handler": handler.name, "input": handler.signature.input_of(args, kwargs)}
        fields = call | {name: value for name, value in fields.items() if name in _OPTIONS}
    document = dict(fields)
    for name in ("on_success", "on_failure", "on_recovered"):
        if name in fields:
            events = fields[name]
            document[name] = [event.to_json() if isinstance(event, FollowUp) else event for event in events]
    return document


def body_with(fields: dict[str, Any], content: bytes) -> bytes:
    """Return the body of an operation whose `input`, or `request.json`, is a message as it was sent.

    Content that is no JSON in UTF-8 is returned alone: in a document it might close that, and add members.
    """
    if not fields:
        return content
    try:
        read_json(content)
        text = content.decode()
    except (MalformedJsonError, UnicodeDecodeError):
        return content
    if "dependency" in fields:
        request = _text_with(dict(fields.pop("request", {})), "json", text)
        return _text_with(fields, "request", request).encode()
    return _text_with(fields, "input", text).encode()


def _text_with(members: dict[str, Any], name: str, text: str) -> str:
    head = json.dumps(members).removesuffix("}")
    return f'{head}{", " if members else ""}"{name}": {text}}}'


class OperationFailed(Exception):  # noqa: N818 - said where it is raised: `except OperationFailed`
    """An operation that did not succeed.

        except OperationFailed as failed:
            log.warning("%s: %s, dead letter %s", failed.reason, failed.detail, failed.dead_letter_id)

    Attributes:
        operation_id: The id of the operation; "" when it was never started.
        status: `dead_lettered` or `cancelled`; `refused` when it was never started.
        category: Kind of the failure, such as `malformed`; None of a cancelled one.
        reason: The reason of the dead letter, such as `RetriesExhausted`; `ValidationFailed` or `CircuitOpen`
            when it was refused.
        dead_letter_id: What to replay; None when there is none.
        detail: What went wrong, for a person.
        document: The last status document; empty when it was never started.
    """

    def __init__(self, document: Mapping[str, Any], problems: Iterable[Mapping[str, str]] = ()) -> None:
        letter = document.get("dead_letter") or {}
        listed = "; ".join(f"{problem['pointer']}: {problem['detail']}" for problem in problems)
        self.document = dict(document)
        self.operation_id = str(document.get("operation_id", ""))
        self.status = str(document.get("status", "refused"))
        self.category: str | None = "malformed" if listed else letter.get("category")
        self.reason: str | None = "ValidationFailed" if listed else letter.get("reason")
        self.dead_letter_id: str | None = letter.get("id")
        self.detail = listed or str(letter.get("detail") or "")
        words = (self.operation_id, self.status, self.reason, self.detail)
        super().__init__(", ".join(filter(None, words)))


def checked_document(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the body of an operation as JSON, no larger than one that comes over HTTP.

    Raises:
        InvalidInputError: The host could not read it, or it is too large.
    """
    document: dict[str, Any] = plain_json(fields)
    if problem := size_problem(document, app_settings().max_body_bytes):
        raise InvalidInputError([problem])
    return document


def result_in(ended: Mapping[str, Any]) -> Any:
    """Return the result of an operation.

    Args:
        ended: `document`, its last status document; or `problems`, why it was never started.

    Raises:
        OperationFailed: It has none.
    """
    if "problems" in ended:
        raise OperationFailed({}, ended["problems"])
    document = ended["document"]
    if document["status"] != OperationState.SUCCEEDED:
        raise OperationFailed(document)
    result = document["result"]
    if is_masked_at(result, "/value"):
        detail = "holds the dependency's credential, which is never stored: there is no value to return"
        places = [place for place in result[MASKED] if is_masked_at({MASKED: [place]}, "/value")]
        raise OperationFailed(document, [Problem(place, detail).to_json() for place in places])
    if "value" not in result:
        return result
    handler = registered_handlers().get(document["handler"])
    value = result["value"]
    return value if handler is None else handler.read_result(value)
