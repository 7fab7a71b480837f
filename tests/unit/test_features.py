"""The core does without any feature: with some refused it starts, and lacks the functions of those alone."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from durable_retry.plugins import Plugin, features, names_of_absent, plugins, why_absent
from durable_retry.routing import CORE
from durable_retry.runtime.deferred import imported
from scripts.processes import ROOT
from tests.support.commands import ran
from tests.support.without_feature import app_without

FEATURES: Final = {plugin.name: plugin for plugin in features()}
TAKEN_OUT: Final = [
    *(tuple([*FEATURES][first::6]) for first in range(6)),
    *(pytest.param((name,), marks=pytest.mark.long) for name in FEATURES),
]
"""Every feature goes with others, and alone in a long test: the start of an app takes over a second."""

OTHERWISE_OFF: Final = {
    "auth.identity": '"api://payments/.default"',
    "auth.oauth": "{}",
    "circuit.by": '"limit_key"',
    "retry.on_exhausted": '"hold"',
    "webhook.secrets": '["d2ViaG9vay1zZWNyZXQtb2YtMzItYnl0ZXMtMTIzNDU="]',
}
"""Values of keys that ask for a feature where others do not."""


PRELOADED: Final = ["azure.durable_functions", "azure.data.tables.aio", "httpx", "pydantic"]
"""What every app imports of others: each process begins with it."""


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    """Runs each task in a process of its own, which has loaded nothing of the product."""
    apart = get_context("forkserver")
    apart.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(1, mp_context=apart, max_tasks_per_child=1) as executor:
        yield executor


def without(processes: Executor, taken: tuple[str, ...], folder: Path) -> tuple[set[str], dict[str, str]]:
    """Return the functions of an app without features, and what is wrong where all that any adds is used."""
    members, settings, keys = (
        sorted({name for plugin in plugins() for name in names_in(plugin)})
        for names_in in (members_of, settings_of, keys_of)
    )
    lines = ("[dependencies.payments]", *(f"{key} = {OTHERWISE_OFF.get(key, '0')}" for key in keys))
    (file := folder / "dependencies.toml").write_text("\n".join(lines))
    added = (dict.fromkeys(members), dict.fromkeys(settings, "1"))
    found: tuple[set[str], dict[str, str]] = processes.submit(app_without, taken, file, *added).result(120)
    return found


def functions_of(plugin: Plugin) -> set[str]:
    durable = {name for each in plugin.activities for name in each.names}
    durable |= {each.name for each in plugin.orchestrations} | set(plugin.entities)
    sources = imported(plugin.sources).values() if plugin.sources else ()
    triggered = {
        name
        for blueprint in (*plugin.blueprints(), *filter(None, (source.blueprint() for source in sources)))
        for builder in blueprint._function_builders
        if not (name := builder._function.get_function_name() or "").startswith("BuiltIn__")
    }
    others = {path for other in FEATURES.values() if other is not plugin for path in paths_of(other)}
    others |= {each.path for each in CORE}
    own = {each.function for each in plugin.collections if each.path not in others}
    return durable | triggered | own


def paths_of(plugin: Plugin) -> set[str]:
    """Return the collections to which a feature adds routes."""
    return {each.path for each in plugin.collections}


def members_of(plugin: Plugin) -> set[str]:
    return set(imported(plugin.members).model.model_fields) if plugin.members else set()


def settings_of(plugin: Plugin) -> set[str]:
    """Return the app settings that do nothing without a feature, and that nobody else reads."""
    groups = [group for each in plugin.settings if not (group := imported(each)).is_shared]
    return {each.name for group in groups for each in group.described()}


def keys_of(plugin: Plugin) -> set[str]:
    """Return the keys of a dependency that do nothing without a feature."""
    added = imported(plugin.dependency).model_fields if plugin.dependency else {}
    keys = {info.alias or name for name, info in added.items()}
    return {*keys, *plugin.of_core} - {key.partition(".")[0] for key in plugin.of_core}


@pytest.fixture(scope="module")
def whole(processes: Executor, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The functions of an app with all features."""
    return without(processes, (), tmp_path_factory.mktemp("whole"))[0]


@pytest.mark.parametrize("taken", TAKEN_OUT, ids=",".join)
def test_an_app_without_features_lacks_their_functions_alone_and_refuses_what_would_do_nothing(
    processes: Executor, taken: tuple[str, ...], whole: set[str], tmp_path: Path
) -> None:
    left, problems = without(processes, taken, tmp_path)
    needs = [(plugin, {plugin.name, *plugin.needs}.intersection(taken)) for plugin in plugins()]
    gone = [(plugin, min(lacks)) for plugin, lacks in needs if lacks]
    assert whole - left == set().union(*(functions_of(plugin) for plugin, _ in gone))
    lacking = re.compile(r"is of the feature (\w+), which this app lacks")
    assert {name: said[1] for name, detail in problems.items() if (said := lacking.search(detail))} == {
        name: lacked
        for plugin, lacked in gone
        for name in (
            *(f"/{name}" for name in members_of(plugin)),
            *(f"dependencies.payments.{name}" for name in keys_of(plugin)),
            *settings_of(plugin),
        )
    }


ROOMS: Final = (
    *("attempt", "base", "circuit", "entities", "http", "hub", "intake", "operations"),
    *("orchestrators", "rules", "runtime", "settings", "telemetry", "upkeep"),
)
OF_THE_WHOLE: Final = {"test_callers_acts.py", "test_cursors.py"}
"""They describe an app with all that plugs in."""
ABOUT: Final = {
    "debounce": (
        "test_a_mistake_of_the_form_hides_none_of_what_is_configured",
        "test_what_members_say_together_counts_with_the_order_key_of_the_source_too",
        "test_what_a_later_operation_replaced_is_counted_with_its_priority",
    ),
    "fail_fast": ("test_fail_fast", "test_a_call_that_fails_fast_goes_to_its_fallback_all_the_same"),
    "fallback": (
        "test_a_fallback_that_cannot_be_is_refused_with_its_place",
        "test_no_mistake_hides_what_the_app_finds_where_it_runs",
    ),
    "holding": ("test_work_that_was_held_at_its_deadline",),
    "limits": (
        "test_an_operation_that_was_started_with_a_needed_slot",
        "test_a_webhook_beyond_the_share_takes_a_slot_and_gives_it_back",
        "test_a_question_waits_for_the_circuit_and_asks_its_entities",
        "test_what_is_held_up_asks_the_entity_of_the_present_name",
        "test_a_webhook_asks_the_entity_of_the_present_name",
        "test_a_step_probes_and_takes_a_slot_at_its_own_dependency",
        "test_the_slot_of_a_step_is_kept_while_the_operations_own_dependency_holds_it_up",
        "test_a_step_that_is_told_of_a_free_slot_asks_for_it_and_its_handler_runs_once_more",
        "test_a_turn_counts_from_the_call_that_was_answered",
    ),
    "lookup": (
        "test_a_lookup_of_a_function_that_cannot_be_is_refused_with_its_place",
        "test_a_replay_asks_first_where_nobody_knows_whether_the_latest_attempt_happened",
    ),
    "order": (
        "test_a_mistake_of_the_form_hides_none_of_what_is_configured",
        "test_order_is_kept_where_it_is_asked_for",
        "test_a_source_gives_an_order_key_to_what_has_none",
        "test_what_members_say_together_counts_with_the_order_key_of_the_source_too",
    ),
    "outbox": (
        "test_a_dependency_without_an_address_takes_handlers_and_no_requests",
        "test_an_event_goes_to_a_dependency_with_an_address",
        "test_mistakes_of_every_kind_are_reported_together",
        "test_an_unknown_name_is_reported_with_what_else_is_wrong",
        "test_an_event_cannot_go_to_a_queue_of_the_platform",
        "test_events_that_nobody_could_get_are_listed_with_their_place",
        "test_who_still_uses_an_earlier_name_starts_the_operation_under_the_present_one",
        "test_a_mistake_of_the_form_hides_none_of_what_is_configured",
        "test_a_webhook_carries_only_the_apps_own_credential",
        "test_a_webhook_secret_of_24_bytes_can_sign",
    ),
    "schemas": ("test_no_mistake_hides_what_the_app_finds_where_it_runs",),
    "workflows": ("test_a_saga_step_that_waits_for_a_result_is_not_sent_with_the_reference_to_it",),
}
"""Tests of the core that name what a feature adds."""


def files_of(feature: str) -> set[str]:
    """Return what is taken out with a feature: paths of folders and files."""
    plugin = FEATURES[feature]
    modules = {
        *(
            f"orchestrators/{module}.py"
            for module in (
                *plugin.orchestrators,
                plugin.gate,
                plugin.settle,
                plugin.decision,
                plugin.exhausted,
            )
            if module
        ),
        *(f"activities/{each.module}.py" for each in plugin.activities),
        *(f"entities/{module}.py" for module in plugin.entities),
    }
    return {f"durable_retry/features/{feature}", *modules}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this tree without the console, which shows some features; what stays is compiled once."""
    folder = tmp_path_factory.mktemp("tree")
    for top in ("durable_retry", "orchestrators", "activities", "entities", "tests", "scripts", "docs"):
        shutil.copytree(ROOT / top, folder / top, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.glob("*.*"):
        if file.is_file():
            shutil.copy2(file, folder)
    alone = "from importlib import metadata\nmetadata.entry_points = lambda **_: ()\n"
    (folder / "sitecustomize.py").write_text(alone)
    return folder


@pytest.fixture
def remaining(feature: str, tree: Path, tmp_path: Path) -> Iterator[Path]:
    """The same without a feature, which comes back after the test."""
    gone = [(tree / name, tmp_path / str(number)) for number, name in enumerate(files_of(feature))]
    for place, aside in gone:
        place.rename(aside)
    yield tree
    for place, aside in gone:
        aside.rename(place)


def names_of(feature: str) -> re.Pattern[str]:
    """Return what a test says that is about a feature."""
    modules = "|".join(Path(name).stem for name in files_of(feature))
    of_parts = r"|support\.feature_parts" if feature in {"order", "outbox"} else ""
    return re.compile(
        rf"features\.{feature}\b|(?:orchestrators|activities|entities)(?:\.| import .*\b)"
        rf"(?:{modules})\b{of_parts}"
    )


def test_a_key_of_a_distribution_that_is_not_installed_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_absent("recovery") == ""
    monkeypatch.setattr("durable_retry.plugins.installed", tuple)
    names_of_absent.cache_clear()
    assert why_absent("recovery") == "is of the feature console, which this app lacks"
    names_of_absent.cache_clear()


@pytest.mark.long
@pytest.mark.parametrize("feature", FEATURES)
def test_the_tests_of_the_core_pass_where_the_files_of_a_feature_are_gone(
    feature: str, remaining: Path
) -> None:
    """All but those that name it, or the console."""
    rooms = (remaining / "tests" / "unit" / room for room in ROOMS)
    tests = (file for room in rooms for file in room.rglob("test_*.py"))
    files = [file for file in tests if "durable_retry_console" not in file.read_text()]
    about = [file for file in files if names_of(feature).search(file.read_text())]
    assert len(about) < len(files) / 8
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider"]
    command += ["-k", " and ".join(f"not {name}" for name in ABOUT.get(feature, ()))]
    command += [str(file) for file in files if file not in about and file.name not in OF_THE_WHOLE]
    environment = os.environ | {"PYTHONPATH": str(remaining)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = ran(command, cwd=remaining, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
