"""The calls under /entities: read entities and signal them."""

import json

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onebox.hub import TaskHub
from onebox.hub.model import to_us
from onebox.hub.store.reading import EntityFilter
from onebox.management.payloads import (
    CONTINUATION_HEADER,
    entity_payload,
    flag,
    instant_from,
    json_body,
    json_value,
    number,
    page,
)

_DEFAULT_PAGE = 100
_EMPTY_KEY = "$"  # how the path spells a key that is empty


class Entities:
    """Answers for entities."""

    def __init__(self, hub: TaskHub) -> None:
        self._hub = hub

    async def answer(self, request: Request, rest: list[str]) -> Response:
        """Answer `/entities[/{name}[/{key}]]`."""
        match request.method, rest:
            case "GET", [] | [_]:
                return self._list(request, rest[0] if rest else None)
            case "GET", [name, key]:
                return self._state(_entity_id(name, key))
            case "POST", [name, key]:
                return await self._signal(request, _entity_id(name, key), request.query_params.get("op", ""))
            case "DELETE", [name, key]:
                return await self._signal(request, _entity_id(name, key), "delete")
        return Response(status_code=404)

    def _list(self, request: Request, name: str | None) -> Response:
        changed_from = instant_from(request.query_params.get("lastOperationTimeFrom"))
        changed_to = instant_from(request.query_params.get("lastOperationTimeTo"))
        wanted = EntityFilter(
            id_prefix=f"@{name.lower()}@" if name else None,
            modified_from_us=None if changed_from is None else to_us(changed_from),
            modified_to_us=None if changed_to is None else to_us(changed_to),
        )
        limit = number(request, "top") or _DEFAULT_PAGE
        found = self._hub.query_entities(wanted, limit, request.headers.get(CONTINUATION_HEADER) or None)
        with_state = flag(request, "fetchState", default=False)
        return page([entity_payload(each, with_state=with_state) for each in found.items], found.token)

    def _state(self, entity_id: str) -> Response:
        state = self._hub.get_entity(entity_id)
        if state is None or state.state is None:
            return Response(status_code=404)
        return JSONResponse(json_value(state.state))

    async def _signal(self, request: Request, entity_id: str, operation: str) -> Response:
        await self._hub.signal_entity(entity_id, operation, await _operation_input(request))
        return Response(status_code=202)


async def _operation_input(request: Request) -> str | None:
    """Return the body as JSON text: unchanged when its content type is JSON, else as a JSON string."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        return await json_body(request)
    body = await request.body()
    return json.dumps(body.decode()) if body else None


def _entity_id(name: str, key: str) -> str:
    return f"@{name.lower()}@{'' if key == _EMPTY_KEY else key}"
