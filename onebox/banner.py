"""What is printed once everything serves: the functions and how to reach them."""

from collections.abc import Iterable, Iterator

from onebox.http.functions import Endpoint
from onebox.worker.functions import HTTP_TRIGGER, Catalogue, Function

# The SDK registers its own functions in every app under this prefix.
_BUILT_IN = "BuiltIn__"


def banner(catalogue: Catalogue, endpoints: Iterable[Endpoint], base_url: str) -> str:
    """Return the list of functions, HTTP ones first with methods and URL, as `func start` prints it."""
    lines = ["", "Functions:", ""]
    lines += [f"\t{line}" for line in (*_http_lines(endpoints, base_url), *_other_lines(catalogue))]
    return "\n".join([*lines, ""])


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
