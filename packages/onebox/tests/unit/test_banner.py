from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onebox.banner import banner, differences
from onebox.worker.functions import Binding, Catalogue, Function


def function(name: str, kind: str, *further: Binding) -> Function:
    trigger = Binding("given", kind, is_output=False, properties={})
    return Function(name, name, trigger, (trigger, *further))


def test_what_works_as_in_the_functions_host_is_not_mentioned() -> None:
    client = Binding("client", "durableClient", is_output=False, properties={})
    answer = Binding("$return", "http", is_output=True, properties={})
    kinds = ("queueTrigger", "timerTrigger", "eventGridTrigger", "orchestrationTrigger", "activityTrigger")
    catalogue = Catalogue(
        [function("page", "httpTrigger", client, answer), *(function(each, each) for each in kinds)]
    )
    assert not list(differences(catalogue, {"http"}))


def test_what_onebox_lacks_is_named_with_its_function() -> None:
    note = Binding("note", "blob", is_output=False, properties={})
    row = Binding("row", "cosmosDB", is_output=True, properties={})
    catalogue = Catalogue([function("load", "blobTrigger", note, row)])
    assert list(differences(catalogue, {"http", "queue"})) == [
        "load: nothing fires a blobTrigger here; POST /admin/functions/load does",
        "load: input note stays empty, for onebox reads no blob",
        "load: fails when it sets row, for onebox writes no cosmosDB",
    ]


def test_an_app_without_functions_is_mentioned() -> None:
    assert list(differences(Catalogue([]), set())) == [
        "the app has no functions: onebox serves those of `app`, a FunctionApp or DFApp"
    ]


@pytest.mark.parametrize(
    ("lists_functions", "named"),
    [(False, "Functions: 1; start with --verbose to list them"), (True, "\twatch: timerTrigger")],
)
def test_functions_are_counted_and_listed_when_asked_for(*, lists_functions: bool, named: str) -> None:
    components: Any = SimpleNamespace(
        account=SimpleNamespace(kind="external", endpoints={}),
        functions=SimpleNamespace(endpoints=()),
        catalogue=Catalogue([function("watch", "timerTrigger")]),
    )
    lines = banner(
        components, "http://127.0.0.1:7071", Path("data"), lists_functions=lists_functions
    ).splitlines()
    assert named in lines
    assert lines[1].endswith(" on http://127.0.0.1:7071")
