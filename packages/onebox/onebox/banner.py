"""What is printed once everything serves: where, with which storage, and the functions."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from onebox import __version__
from onebox.http.functions import Endpoint
from onebox.parts import Parts
from onebox.storage.account import StorageAccount
from onebox.worker.functions import HTTP_TRIGGER, Catalogue, Function

# The SDK registers its own functions in every app under this prefix.
_BUILT_IN = "BuiltIn__"


def banner(parts: Parts, base_url: str, data: Path) -> str:
    """Return the head and the list of functions, HTTP ones first with methods and URL, as in `func start`."""
    functions = (*_http_lines(parts.functions.endpoints, base_url), *_other_lines(parts.catalogue))
    head = [
        f"onebox {__version__} on {base_url}",
        f"Data:    {data}",
        *(f"Storage: {line}" for line in storage_lines(parts.account)),
    ]
    return "\n".join(["", *head, "", "Functions:", "", *(f"\t{line}" for line in functions), "", ""])


def storage_lines(account: StorageAccount) -> Iterator[str]:
    """Yield a line per endpoint, or one for an external account."""
    if account.kind == "external":
        yield "the account in AzureWebJobsStorage"
    note = " (joined: it belongs to another process)" if account.kind == "joined" else ""
    for name, url in account.endpoints.items():
        yield f"{name} {url}{note}"


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
