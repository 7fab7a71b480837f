"""Requests and answers of the management API: query parameters, JSON bodies, JSON shapes."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
from azure.durable_functions.internal.compat.history_projection import project_history
from durabletask.history import _from_protobuf as event_from_protobuf
from starlette.requests import Request
from starlette.responses import Response

from onebox.hub.listing import EntityState, InstanceState
from onebox.hub.model import Status, to_datetime
from onebox.numbers import decimal_number, plain_number
from onebox.worker.durable import DurableUrls

CONTINUATION_HEADER = "x-ms-continuation-token"
_RETRY_AFTER_START_SECONDS = 10


_STATUS_NAMES = {status: status.name.title().replace("_", "") for status in Status} | {
    Status.CONTINUED_AS_NEW: "ContinuedAsNew"
}
_STATUSES = {name.lower(): status for status, name in _STATUS_NAMES.items()}


class BadRequestError(Exception):
    """The request is malformed; the caller gets the message with a 400."""


class JsonAnswer(Response):
    """JSON in ASCII: what an app stores may hold lone surrogates, which UTF-8 has no bytes for."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Write the body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def problem(status: int, message: str) -> Response:
    """Return an error in the extension's shape."""
    return JsonAnswer({"Message": message}, status_code=status)


def check_status(request: Request, urls: DurableUrls, instance_id: str) -> Response:
    """Return the 202 of a started instance, with its URLs on the origin that the caller used."""
    origin = f"{request.url.scheme}://{request.url.netloc}"
    links = DurableUrls(origin, urls.hub_name, urls.code).management(instance_id)
    headers = {"Location": links["statusQueryGetUri"], "Retry-After": str(_RETRY_AFTER_START_SECONDS)}
    return JsonAnswer(dict(links), status_code=202, headers=headers)


def page(items: list[Any], token: str | None) -> Response:
    """Return a list; the header carries the token of the next page, if there is one."""
    return JsonAnswer(items, headers={} if token is None else {CONTINUATION_HEADER: token})


def flag(request: Request, name: str, *, default: bool) -> bool:
    """Read a boolean parameter; anything but true and false counts as absent."""
    return {"true": True, "false": False}.get(_parameter(request, name).lower(), default)


def number(request: Request, name: str) -> int | None:
    """Read a whole number; None when it is absent or none."""
    return plain_number(_parameter(request, name))


def seconds(request: Request, name: str) -> float | None:
    """Read a number of seconds; None when it is absent or none."""
    return decimal_number(_parameter(request, name))


def _parameter(request: Request, name: str) -> str:
    wanted = name.lower()
    return next((value for key, value in request.query_params.items() if key.lower() == wanted), "")


async def json_body(request: Request) -> str | None:
    """Return the body as JSON text; None when there is none.

    Raises:
        BadRequestError: It is not JSON.
    """
    body = await request.body()
    if not body:
        return None
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequestError("Invalid JSON content") from None
    return body.decode()


def status_name(status: Status) -> str:
    """Return a status as the API writes it."""
    return _STATUS_NAMES[status]


def statuses_from(values: Sequence[str]) -> frozenset[Status]:
    """Read `runtimeStatus=a,b`; names that do not exist are passed over, as the extension does."""
    names = (name.strip().lower() for value in values for name in value.split(","))
    return frozenset(_STATUSES[name] for name in names if name in _STATUSES)


def instance_payload(
    state: InstanceState, *, show_input: bool = True, history: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return an instance as the API shows it; the history only when given."""
    payload = {
        "name": state.name,
        "instanceId": state.id,
        "runtimeStatus": status_name(state.status),
        "input": json_value(state.input) if show_input else None,
        "customStatus": json_value(state.custom_status),
        "output": output_of(state),
        "createdTime": _seconds(state.created_us),
        "lastUpdatedTime": _seconds(state.updated_us),
    }
    return payload if history is None else payload | {"historyEvents": history}


def output_of(state: InstanceState) -> Any:
    """Return an instance's output; for a failed one, the text of what went wrong."""
    return json_value(state.shown_output)


def history_payload(
    events: Sequence[pb.HistoryEvent], *, show_input: bool, show_output: bool
) -> list[dict[str, Any]]:
    """Return a history in the shape of the status query; the projection is the SDK's own."""
    known = [event_from_protobuf(event) for event in events]
    return project_history(known, show_input=show_input, show_history_output=show_output)


def entity_payload(state: EntityState, *, with_state: bool) -> dict[str, Any]:
    """Return an entity as the list of entities shows it."""
    _, name, key = state.id.split("@", 2)
    instant = to_datetime(state.modified_us).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    payload = {"entityId": {"name": name, "key": key}, "lastOperationTime": instant}
    return payload | {"state": json_value(state.state)} if with_state else payload


def json_value(text: str | None) -> Any:
    """Return the value of JSON text; the text itself when it is no JSON.

    Numbers that JSON does not have, such as Python's NaN, become text, as in the extension.
    """
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=str, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(text: str) -> float | str:
    number = float(text)
    return number if isfinite(number) else text


def instant_from(text: str | None) -> datetime | None:
    """Read a time as the extension does: UTC without an offset; None when it is absent or no time."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _seconds(us: int) -> str:
    return to_datetime(us).strftime("%Y-%m-%dT%H:%M:%SZ")
