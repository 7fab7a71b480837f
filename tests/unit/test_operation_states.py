import re
from pathlib import Path
from typing import get_args, get_type_hints

import durable_retry_console.dashboard
from durable_retry.base.names import FINISHED, WAITING, OperationState
from durable_retry.rules.retry.history import WaitKind
from durable_retry_console.bulk.bodies import BulkFilter
from retryctl.options import OPTIONS, Option
from tests.support.narrowing import existing, of_type

_PAGE = Path(durable_retry_console.dashboard.__file__).parent / "page"
_ALL = [state.value for state in OperationState]
UNFINISHED = tuple(state for state in OperationState if state not in FINISHED)


def _words_of(file: str, name: str) -> list[str]:
    found = existing(re.search(rf"const {name} = \[(.*)\]", (_PAGE / file).read_text("utf-8")))
    return re.findall(r'"(\w+)"', found[1])


def test_a_filter_of_unfinished_operations_takes_their_states() -> None:
    words, _ = get_args(get_type_hints(BulkFilter)["status"])
    assert get_args(words) == ("open", "archived", *UNFINISHED)


def test_the_command_line_takes_every_state() -> None:
    assert list(of_type(Option, OPTIONS["operation_status"]).more["choices"]) == _ALL


def test_the_dashboard_orders_every_state() -> None:
    assert _words_of("pieces.js", "STATES") == _ALL
    assert set(_words_of("pieces.js", "WAITING")) == WAITING
    assert set(_words_of("pieces.js", "FINISHED")) == FINISHED
    assert sorted(_words_of("charts.js", "ORDER")) == sorted(_ALL)
    assert sorted(_words_of("views/workflows.js", "WORST_FIRST")) == sorted(_ALL)


def test_the_dashboard_has_words_for_every_wait() -> None:
    waits = re.search(r"const WAITS = \{(.*?)\};", (_PAGE / "charts.js").read_text("utf-8"), re.DOTALL)
    assert set(WaitKind) <= set(re.findall(r"^  (\w+): \[", existing(waits)[1], re.MULTILINE))


def test_the_dashboard_has_a_colour_for_every_state() -> None:
    styles = (_PAGE / "styles.css").read_text("utf-8")
    assert [state for state in _ALL if f".is-{state} {{ --key: " not in styles] == []
