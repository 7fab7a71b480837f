"""One worker process of an app whose host is `two_workers`: its activities, called over HTTP.

Usage: python -m tests.support.worker_process PORT
"""

import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from onebox.clock import SystemClock
from onebox.hub.invoker import InvocationFailedError
from onebox.logs import set_up_logs
from onebox.worker.durable import BindingInputs, DurableInvoker
from onebox.worker.loading import load_app
from onebox.worker.runner import Runner, text_datum
from scripts.processes import ROOT


def application() -> Starlette:
    """Loads the app and serves its activities."""
    inputs = BindingInputs()
    invoker = DurableInvoker(load_app(ROOT), Runner(SystemClock(), None), inputs)

    async def activity(request: Request) -> JSONResponse:
        call: dict[str, Any] = await request.json()
        inputs._client = text_datum(call.pop("client"))
        try:
            return JSONResponse({"returned": await invoker.activity(**call)})
        except InvocationFailedError as failed:
            return JSONResponse({"failed": [failed.error_type, failed.message, failed.stack_trace]})

    return Starlette(routes=[Route("/activity", activity, methods=["POST"])])


if __name__ == "__main__":
    set_up_logs(verbose=False)
    uvicorn.run(application(), port=int(sys.argv[1]), log_config=None, access_log=False)
