"""Timers: one that fires every second, and one that fails until its retry policy is exhausted."""

import json
from collections import defaultdict

import azure.functions as func

blueprint = func.Blueprint()  # type: ignore[no-untyped-call] # azure-functions has no types

RUNS: defaultdict[str, list[dict[str, object]]] = defaultdict(list)


@blueprint.timer_trigger(arg_name="timer", schedule="* * * * * *", run_on_startup=True)
def tick(timer: func.TimerRequest) -> None:
    RUNS["tick"].append({"past_due": timer.past_due})


@blueprint.timer_trigger(arg_name="timer", schedule="0 0 0 1 1 *")
@blueprint.retry(strategy="fixed_delay", max_retry_count="2", delay_interval="00:00:00")
def flaky_timer(timer: func.TimerRequest, context: func.Context) -> None:  # noqa: ARG001 # the binding names it
    retry = context.retry_context
    # The worker's own class spells it so, whatever azure.functions documents.
    error = getattr(retry, "rpc_exception")  # noqa: B009 # unknown to the type checker
    run: dict[str, object] = {
        "retry": retry.retry_count,
        "of": retry.max_retry_count,
        "error": error.message if error else None,
    }
    RUNS["flaky_timer"].append(run)
    raise RuntimeError(f"run {retry.retry_count}")


@blueprint.route(route="runs/{name}", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
def runs(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(json.dumps(RUNS[req.route_params["name"]]), mimetype="application/json")
