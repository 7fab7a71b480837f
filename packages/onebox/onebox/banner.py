"""What a start prints: the address, the functions, and what works differently from the Functions host."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from onebox import __version__
from onebox.composition import Components
from onebox.http.functions import Endpoint
from onebox.storage.account import storage_lines
from onebox.triggers.event_grid import EVENT_GRID_TRIGGER
from onebox.worker.functions import (
    ACTIVITY_TRIGGER,
    DURABLE_CLIENT,
    ENTITY_TRIGGER,
    HTTP_TRIGGER,
    ORCHESTRATION_TRIGGER,
    QUEUE_TRIGGER,
    TIMER_TRIGGER,
    Catalogue,
    Function,
)

# The SDK registers its own functions in every app under this prefix.
_BUILT_IN = "BuiltIn__"
# Triggers that something here fires.
_SERVED = {
    ACTIVITY_TRIGGER,
    ENTITY_TRIGGER,
    EVENT_GRID_TRIGGER,
    HTTP_TRIGGER,
    ORCHESTRATION_TRIGGER,
    QUEUE_TRIGGER,
    TIMER_TRIGGER,
}


def banner(components: Components, base_url: str, data: Path, *, lists_functions: bool) -> str:
    """Return where the app serves and keeps its data, and how many functions it has.

    Args:
        lists_functions: Whether to list them, HTTP ones first with methods and URL, as in `func start`.
    """
    functions = [*_http_lines(components.functions.endpoints, base_url), *_other_lines(components.catalogue)]
    head = [
        f"onebox {__version__} on {base_url}",
        f"Data:    {data}",
        *(f"Storage: {line}" for line in storage_lines(components.account)),
    ]
    if lists_functions:
        return "\n".join(["", *head, "", "Functions:", "", *(f"\t{line}" for line in functions), "", ""])
    return "\n".join(["", *head, f"Functions: {len(functions)}; start with --verbose to list them", "", ""])


def differences(catalogue: Catalogue, outputs: Collection[str]) -> Iterator[str]:
    """Return what works differently from the Functions host, one line each.

    Args:
        catalogue: The app's functions.
        outputs: The output bindings that can be sent.
    """
    if not len(catalogue):
        yield "the app has no functions: onebox serves those of `app`, a FunctionApp or DFApp"
    for function in catalogue:
        kind = function.trigger.type
        if kind not in _SERVED:
            yield f"{function.name}: nothing fires a {kind} here; POST /admin/functions/{function.name} does"
        for each in function.inputs:
            if each.type != DURABLE_CLIENT:
                yield f"{function.name}: input {each.name} stays empty, for onebox reads no {each.type}"
        for each in function.outputs:
            if each.type not in outputs:
                yield f"{function.name}: fails when it sets {each.name}, for onebox writes no {each.type}"


def _http_lines(endpoints: Iterable[Endpoint], base_url: str) -> Iterator[str]:
    for each in sorted(endpoints, key=lambda endpoint: endpoint.function.name.lower()):
        methods = ",".join(sorted(each.methods)) or "all methods"
        yield f"{each.function.name}: [{methods}] {base_url}/{each.template.text}"


def _other_lines(catalogue: Catalogue) -> Iterator[str]:
    others = [each for each in catalogue if each.trigger.type != HTTP_TRIGGER]
    for each in sorted(others, key=lambda function: function.name.lower()):
        if not each.name.startswith(_BUILT_IN):
            yield f"{each.durable_name}: {each.trigger.type}{_source(each)}"


def _source(function: Function) -> str:
    source = function.trigger.text("queueName") or function.trigger.text("schedule")
    return f" ({source})" if source else ""
