"""HTTP: the circuits, and what a person does to them."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, Final

import azure.functions as func
from pydantic import Field

from engine.circuit import Hand, HandAction, HandMessage, view_of
from engine.dependency import Dependency
from engine.validation import Strict, checked, validated
from stores import clock
from stores.circuit_entity import CircuitEntity
from stores.configuration import dependencies, find_dependency
from stores.waiting_operations import start_release
from triggers.bodies import header, read_body
from triggers.http_blueprint import HttpBlueprint
from triggers.problems import WRONG_STATE, json_answer, not_found, problem

blueprint = HttpBlueprint()

_PRINCIPAL: Final = "x-ms-client-principal-name"
"""Set by App Service authentication, which strips what a caller sends under this name."""
_NOBODY_KNOWN: Final = "api"
_YEAR_SECONDS: Final = 31_536_000.0
_LETS_GO: Final = frozenset({Hand.CLOSE, Hand.DISABLE, Hand.RESET})


def _blank(reason: str) -> str | None:
    return None if reason.strip() else "must say why"


class HandRequest(Strict):
    """The body.

    Attributes:
        reason: Why, for whoever looks at the trail later; 200 characters of it are kept.
        for_seconds: How long opening or disabling lasts; None means until the next hand. Closing and
            resetting have no length.
    """

    reason: Annotated[str, Field(max_length=2_000), checked(_blank)]
    for_seconds: Annotated[float, Field(gt=0, le=_YEAR_SECONDS)] | None = None


@blueprint.route(route="circuits", methods=["GET"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def list_circuits(req: func.HttpRequest, hub: str) -> func.HttpResponse:  # noqa: ARG001 - the trigger's own
    """Show the circuit of every dependency; all of them, since a file holds them."""
    known = [dependency for _, dependency in sorted(dependencies().dependencies.items())]
    items = await asyncio.gather(*(_view(hub, dependency) for dependency in known))
    return json_answer({"items": items, "next_cursor": None})


@blueprint.route(route="circuits/{dependency}", methods=["GET"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def get_circuit(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Show a dependency's circuit."""
    dependency = find_dependency(req.route_params["dependency"])
    if dependency is None:
        return not_found("dependency of this name")
    return json_answer(await _view(hub, dependency))


@blueprint.route(route="circuits/{dependency}/open", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def open_circuit(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Hold a circuit open: no attempt goes through."""
    return await _by_hand(req, hub, Hand.OPEN)


@blueprint.route(route="circuits/{dependency}/close", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def close_circuit(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Close a circuit; what waits for it is let go in its turn."""
    return await _by_hand(req, hub, Hand.CLOSE)


@blueprint.route(route="circuits/{dependency}/disable", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def disable_circuit(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Let everything through, whatever fails."""
    return await _by_hand(req, hub, Hand.DISABLE)


@blueprint.route(route="circuits/{dependency}/reset", methods=["POST"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def reset_circuit(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Close a circuit and forget what it knows, but for the trail of what was done by hand."""
    return await _by_hand(req, hub, Hand.RESET)


async def _by_hand(req: func.HttpRequest, hub: str, hand: Hand) -> func.HttpResponse:
    dependency = find_dependency(req.route_params["dependency"])
    if dependency is None:
        return not_found("dependency of this name")
    request = validated(HandRequest, read_body(req))
    if not dependency.circuit.enabled:
        return _switched_off(dependency)
    await _do(hub, dependency.name, _action(req, hand, request))
    body = {"dependency": dependency.name, "action": hand.value, **request.model_dump()}
    return json_answer(body, HTTPStatus.ACCEPTED)


def _action(req: func.HttpRequest, hand: Hand, request: HandRequest) -> HandAction:
    by = header(req, _PRINCIPAL) or _NOBODY_KNOWN
    return HandAction(hand, clock.now(), by, request.reason.strip(), request.for_seconds)


async def _do(hub: str, dependency: str, action: HandAction) -> None:
    message = HandMessage(action)
    await CircuitEntity(hub, dependency).hand(message)
    if action.hand in _LETS_GO:
        await start_release(hub, dependency, message)


async def _view(hub: str, dependency: Dependency) -> dict[str, Any]:
    breaker = await CircuitEntity(hub, dependency.name).read()
    return view_of(dependency.name, breaker, clock.now(), dependency.circuit)


def _switched_off(dependency: Dependency) -> func.HttpResponse:
    return problem(
        HTTPStatus.CONFLICT,
        f"The circuit of {dependency.name} is switched off by circuit.enabled = false in dependencies.toml.",
        type_=WRONG_STATE,
    )
