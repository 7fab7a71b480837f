"""What a handler is called with: the key, the time that is left, and a client of its dependency."""

import httpx

from durable_retry.engine.operations.request import is_unprotected
from durable_retry.handlers import Call
from durable_retry.services.attempt.http_client import PROGRESS, SendProgress, make_client, transport_of
from durable_retry.services.attempt.http_request import Plan, own_headers


class CallTransport(httpx.AsyncBaseTransport):
    """Sends the requests of one attempt of a handler over its dependency's connections.

    Attributes:
        plan: Of the attempt.
        key: What the dependency deduplicates on.
        may_have_acted: Whether a request that the dependency does not deduplicate was sent and not answered.
    """

    def __init__(self, plan: Plan, key: str, inner: httpx.AsyncBaseTransport) -> None:
        self.plan = plan
        self.key = key
        self.may_have_acted = False
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, with what every request carries unless the handler set that header itself."""
        for name, value in own_headers(self.plan, self.key).items():
            request.headers.setdefault(name, value)
        progress = SendProgress()
        request.extensions[PROGRESS] = progress
        try:
            return await self._inner.handle_async_request(request)
        except BaseException:
            self.may_have_acted |= progress.sent and may_repeat_work(self.plan, request)
            raise


def may_repeat_work(plan: Plan, request: httpx.Request) -> bool:
    """Whether sending a request of an attempt again could do its work twice."""
    return is_unprotected(request.method, plan.deduplication_header)


def call_for(plan: Plan) -> tuple[Call, CallTransport]:
    """Return what a handler gets for one attempt, and the transport of its client.

    Closing the client leaves the pooled connections open.
    """
    key = plan.operation.sent_key
    transport = CallTransport(plan, key, transport_of(plan.dependency))
    call = Call(
        key=key,
        attempt=plan.number,
        correlation_id=plan.operation.correlation_id,
        client=make_client(plan.dependency, transport),
        time_left=lambda: plan.limit.seconds_left,
    )
    return call, transport
