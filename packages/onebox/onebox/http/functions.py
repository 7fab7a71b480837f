"""The app's HTTP functions behind their routes."""

import asyncio
import functools
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onebox.faults import HostFaults, HostPoint, no_faults
from onebox.host_json import Http
from onebox.http.keys import Level
from onebox.http.messages import read_body, refusal, request_datum, response_of, trace_of
from onebox.http.routes import RouteError, RouteTemplate, first_words, split_path
from onebox.http.streams import StreamedAnswers
from onebox.worker.durable import BindingInputs
from onebox.worker.functions import HTTP_TRIGGER, Catalogue, Function
from onebox.worker.outputs import Outputs
from onebox.worker.runner import FunctionFailedError, FunctionRunner, Result

_LOG = logging.getLogger("onebox.functions")

_RESERVED = {"admin", "runtime"}


def _expression_values(request: Request, parameters: Mapping[str, str]) -> dict[str, str]:
    """What an output binding may name: route parameters, before those of the query."""
    values = {**request.query_params, **parameters}
    return {name.lower(): value for name, value in values.items()}


@dataclass(frozen=True)
class Endpoint:
    """One HTTP function at its route.

    Attributes:
        function: What is run.
        template: Its route with the prefix.
        methods: Upper case; empty for all.
    """

    function: Function
    template: RouteTemplate
    methods: frozenset[str]

    @functools.cached_property
    def level(self) -> Level:
        """What a request needs to be let in; without a level in the trigger, a function key."""
        return Level((self.function.trigger.text("authLevel") or Level.FUNCTION).lower())

    @functools.cached_property
    def output_name(self) -> str | None:
        """The binding that carries the response; None when the function has none."""
        return next((each.name for each in self.function.outputs if each.type == "http"), None)


def endpoints(catalogue: Catalogue, http: Http) -> tuple[Endpoint, ...]:
    """Return the endpoints in the order in which they are tried: that of the functions' names, case ignored.

    The first that matches a path and its method wins, as in the Functions host (azure-functions-host issue
    9876), however exact another one is.

    Raises:
        RouteError: A template is malformed, or its first segment belongs to the host.
    """
    found = (_endpoint(each, http.route_prefix) for each in catalogue.with_trigger(HTTP_TRIGGER))
    ordered = tuple(sorted(found, key=lambda each: each.function.name.upper()))
    for hidden, by in shadowed(ordered):
        _LOG.warning(
            "%s (%s) is shadowed by %s (%s): as on Azure, routes are tried in the order of the names of "
            "functions, and the first match wins; constrain a parameter, or rename one of the two",
            *(hidden.function.name, hidden.template.text, by.function.name, by.template.text),
        )
    return ordered


def shadowed(ordered: Sequence[Endpoint]) -> list[tuple[Endpoint, Endpoint]]:
    """Return the endpoints whose requests, of one method at least, go to another that is tried earlier."""
    pairs = []
    for index, later in enumerate(ordered):
        first = next((each for each in ordered[:index] if _takes_from(each, later)), None)
        if first is not None:
            pairs.append((later, first))
    return pairs


def _takes_from(first: Endpoint, later: Endpoint) -> bool:
    is_method_shared = not first.methods or not later.methods or bool(first.methods & later.methods)
    return is_method_shared and first.template.hides(later.template)


def _endpoint(function: Function, prefix: str) -> Endpoint:
    route = function.trigger.text("route") or function.name
    template = RouteTemplate.parse("/".join(part.strip("/") for part in (prefix, route) if part.strip("/")))
    if template.text.partition("/")[0].lower() in _RESERVED:
        raise RouteError(f"function {function.name}: routes under {sorted(_RESERVED)} belong to the host")
    methods = function.trigger.properties.get("methods") or ()
    return Endpoint(function, template, frozenset(str(each).upper() for each in methods))


class Admission:
    """host.json's limits: requests that are accepted at once, and functions that run at once."""

    def __init__(self, http: Http) -> None:
        self._most_outstanding = http.max_outstanding_requests
        self._outstanding = 0
        most_running = http.max_concurrent_requests
        self._running = None if most_running is None else asyncio.Semaphore(most_running)

    @property
    def is_full(self) -> bool:
        """Whether one more request has to be refused."""
        return self._most_outstanding is not None and self._outstanding >= self._most_outstanding

    async def __aenter__(self) -> None:
        """Count a request as outstanding, and wait until its function may run."""
        self._outstanding += 1
        if self._running is not None:
            try:
                await self._running.acquire()
            except BaseException:
                self._outstanding -= 1
                raise

    async def __aexit__(self, *_: object) -> None:
        """Let another request's function run."""
        self._outstanding -= 1
        if self._running is not None:
            self._running.release()

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return the application that holds a slot until its answer has been sent."""

        async def within(scope: Scope, receive: Receive, send: Send) -> None:
            async with self:
                await app(scope, receive, send)

        return within


class HttpFunctions:
    """Finds the function for a request, runs it and answers.

    Attributes:
        streamed: Makes the answers of an app whose functions stream; None for one whose functions do not.
    """

    def __init__(
        self,
        found: Iterable[Endpoint],
        runner: FunctionRunner,
        inputs: BindingInputs,
        outputs: Outputs,
        http: Http,
        *,
        faults: HostFaults = no_faults,
    ) -> None:
        self.endpoints = tuple(found)
        self._methods = frozenset[str]().union(*(each.methods for each in self.endpoints))
        # A longer path is taken by catch-alls only, and each of them takes every such path.
        self._most_segments = 1 + max((len(each.template.segments) for each in self.endpoints), default=0)
        self._words = frozenset[str]().union(*(each.template.first_words for each in self.endpoints))
        self._shapes: dict[tuple[str, int, tuple[str, ...]], tuple[Endpoint, ...]] = {}
        self._runner = runner
        self._inputs = inputs
        self._outputs = outputs
        self._faults = faults
        self._headers = http.custom_headers
        self._admission = Admission(http)
        self.streamed: StreamedAnswers | None = None

    def find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]] | None:
        """Return the endpoint for a request and its route parameters.

        The method is part of the match, so a known path with another method is 404, as in the host
        (azure-functions-host issue 10098); HEAD is not implied by GET either (issue 11625).
        """
        parts = split_path(path)
        for endpoint in self._candidates(method, parts):
            parameters = endpoint.template.match(parts)
            if parameters is not None:
                return endpoint, parameters
        return None

    def _candidates(self, method: str, parts: Sequence[str]) -> tuple[Endpoint, ...]:
        """Return the endpoints that serve a method and may match a path, by its first words, in order."""
        methods = method if method in self._methods else ""
        key = (methods, min(len(parts), self._most_segments), first_words(parts, self._words))
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = tuple(
                each
                for each in self.endpoints
                if (not each.methods or method in each.methods)
                and each.template.takes(key[1])
                and each.template.may_begin_with(key[2])
            )
        return found

    async def answer(self, request: Request, endpoint: Endpoint, parameters: Mapping[str, str]) -> ASGIApp:
        """Run the function; an error of its own becomes an empty 500: its text is nobody else's business."""
        if self._admission.is_full:
            return refusal(429)
        if self.streamed is not None:
            return self._admission.around(self._streamed(self.streamed, request, endpoint, parameters))
        async with self._admission:
            return await self._answer_whole(request, endpoint, parameters)

    async def _answer_whole(
        self, request: Request, endpoint: Endpoint, parameters: Mapping[str, str]
    ) -> Response:
        body = await read_body(request)
        self._faults(HostPoint.HTTP_RECEIVED)
        try:
            result = await _to_its_end(self._run(request, body, endpoint, parameters))
            await self._outputs.send(endpoint.function, result, _expression_values(request, parameters))
            self._faults(HostPoint.HTTP_RUN)
            return response_of(result, endpoint.output_name, self._headers)
        except FunctionFailedError:
            return refusal(500)
        except ValueError as error:  # a status, header or cookie that HTTP cannot carry
            name = endpoint.function.name
            _LOG.error("%s: its response cannot be sent: %s", name, error)  # no trace of ours
            return refusal(500)

    def _streamed(
        self,
        streamed: StreamedAnswers,
        request: Request,
        endpoint: Endpoint,
        parameters: Mapping[str, str],
    ) -> ASGIApp:
        async def invoke(invocation_id: str) -> None:
            self._faults(HostPoint.HTTP_RECEIVED)
            result = await self._run(request, b"", endpoint, parameters, invocation_id)
            await self._outputs.send(endpoint.function, result, _expression_values(request, parameters))
            self._faults(HostPoint.HTTP_RUN)

        return streamed.answer(invoke, endpoint.function.name)

    async def _run(
        self,
        request: Request,
        body: bytes,
        endpoint: Endpoint,
        parameters: Mapping[str, str],
        invocation_id: str | None = None,
    ) -> Result:
        function = endpoint.function
        datum = request_datum(request, body, parameters)
        inputs = [(function.trigger.name, datum), *self._inputs.of(function)]
        reason = f"{request.method} {request.scope['path']}"
        trace = trace_of(request)
        return await self._runner.run(
            function, inputs, reason=reason, invocation_id=invocation_id, trace=trace
        )


async def _to_its_end(run: Coroutine[Any, Any, Result]) -> Result:
    """Run a function also when the caller is cancelled: a client that hangs up stops none half way.

    It begins at once, not in the next pass of the event loop.
    """
    running = asyncio.Task(run, loop=asyncio.get_running_loop(), eager_start=True)
    # Reads the error, since asyncio logs one that nobody awaits; the function's own is in the log.
    running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return await asyncio.shield(running)
