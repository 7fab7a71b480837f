"""Asks a function of the app about an attempt; it takes what the handler takes, and runs like it."""

from dataclasses import replace
from functools import lru_cache
from inspect import Parameter
from typing import Any, Final

from durable_retry.attempt.excerpts import error_line
from durable_retry.attempt.http_request import Plan
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.handlers.functions import Interruption, run_function
from durable_retry.features.handlers.handler import attempt_handler
from durable_retry.features.handlers.records import StepRule
from durable_retry.features.handlers.registry import Function, registered_handlers
from durable_retry.features.handlers.rules.steps import RememberedStep
from durable_retry.features.handlers.signatures import lookup_signature, signature_of
from durable_retry.features.handlers.values import Call, Rejected
from durable_retry.features.handlers.writes import sent_once
from durable_retry.rules.retry.history import AttemptOutcome

_CALL: Final = "_call"
"""The parameter that takes the `Call` for the lookup of a handler that takes none."""


class _NotFound(Interruption):
    """The function returned None."""


class _Failed(Interruption):
    """The function raised `Rejected`."""

    def __init__(self, error: Rejected) -> None:
        super().__init__(str(error))
        self.error = error


async def ask_function(plan: Plan, name: str, lookup: Function) -> AttemptOutcome:
    """Ask a function about the attempt of a plan, which a handler made; see `Plugin.handlers`."""
    handler = registered_handlers()[name]
    asking = replace(
        handler,
        name=f"{handler.name}.lookup",
        function=_asking(handler.function, lookup),
        repeatable=True,
        heartbeat_seconds=None,
    )
    try:
        outcome = await attempt_handler(plan, asking, _refuse_step)
    except _NotFound:
        return plan.outcome(result={"says": "not_found"})
    except _Failed as failed:
        return plan.outcome(result={"says": "failed", "why": error_line(failed.error, plan.dependency)})
    if outcome.category is not None:
        return outcome
    # A conflict of what it writes must not run the handler again.
    result = {**outcome.result, **sent_once(outcome.result)}
    return replace(outcome, result={"says": "found", "result": result})


async def _refuse_step(_name: str, _rule: StepRule) -> RememberedStep:
    raise InvalidInputError([Problem("/step", "a lookup has no steps")])


@lru_cache
def _asking(function: Function, lookup: Function) -> Function:
    """Return a function that takes the arguments of a handler's function, and calls its lookup."""
    signature = signature_of(function)
    python, call_parameter = lookup_signature(lookup, signature)
    shape = signature.python
    if signature.call_parameter is None:
        call = Parameter(_CALL, Parameter.KEYWORD_ONLY, annotation=Call)
        shape = shape.replace(parameters=[*shape.parameters.values(), call])

    async def ask(*args: Any, **kwargs: Any) -> Any:
        arguments = shape.bind(*args, **kwargs).arguments
        own_call = signature.call_parameter or _CALL
        bound = python.bind_partial()
        bound.arguments |= {
            name: arguments[own_call if name == call_parameter else name] for name in python.parameters
        }
        try:
            returned = await run_function(lookup, *bound.args, **bound.kwargs)
        except Rejected as error:
            raise _Failed(error) from error
        if returned is None:
            raise _NotFound
        return returned

    ask.__signature__ = shape  # type: ignore[attr-defined] # as PEP 362 has it
    return ask
