import ast
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import azure.functions as func
import pytest

import durable_retry
import entities
from durable_retry.app import harden_runtime
from durable_retry.features.callers.settings import CallerSettings
from durable_retry.features.handlers import loading, registry
from durable_retry.features.handlers.registry import find_handler
from durable_retry.features.openapi.routes import described
from durable_retry.features.retention.settings import RetentionSettings
from durable_retry.intake.intake import intake
from durable_retry.plugins import installed, plugins
from durable_retry.rules.config.dependency import dependency_table
from durable_retry.settings.configuration import (
    Registration,
    find_dependency,
    use_registration,
)
from durable_retry.settings.group import SettingsGroup, setting
from durable_retry.settings.intake import intake_settings
from durable_retry.settings.mistakes import StartError
from scripts.processes import ROOT
from tests.support.commands import ran

DEPENDENCIES = '[dependencies.payments]\nbase_url = "http://127.0.0.1:9"\n'
SDK = {"BuiltIn__HttpActivity", "BuiltIn__HttpPollOrchestrator"}
QUEUES = {"operations_queue", "operations_poison"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing is registered before or after, and there is a dependency without settings."""
    monkeypatch.setenv("AzureWebJobsStorage", "UseDevelopmentStorage=true")
    monkeypatch.delenv("DEPENDENCIES_FILE", raising=False)
    monkeypatch.setattr("durable_retry.settings.configuration._config", None)
    monkeypatch.setattr("durable_retry.features.handlers.registry._handlers", {})
    monkeypatch.setattr("durable_retry.features.handlers.registry._mistakes", {})
    monkeypatch.setattr("durable_retry.features.handlers.registry._check_declared", None)
    (tmp_path / "services.toml").write_text(DEPENDENCIES)
    _forget()
    yield
    use_registration(Registration())
    for entity in _entities():
        entity.__durable_entity_name__ = entity.__durable_entity_name__.removeprefix("retry_")
    _forget()


def _forget() -> None:
    intake_settings.cache_clear()
    intake.cache_clear()
    described.cache_clear()
    plugins.cache_clear()
    installed.cache_clear()


def _entities() -> list[Any]:
    """The classes of the entities; the SDK's decorator puts them on what the host calls."""
    builders = [builder for each in entities.blueprints() for builder in each._function_builders]
    found = (getattr(builder._function._func, "entity_function", None) for builder in builders)
    return [entity for entity in found if entity is not None]


def registered(tmp_path: Path, **chosen: Any) -> dict[str, Any]:
    """The functions of an app that registers, by name."""
    app = df.DFApp()
    durable_retry.register(app, dependencies_file=tmp_path / "services.toml", **chosen)
    found = {function.get_function_name() or "": function for function in app.get_functions()}
    return {name: function for name, function in found.items() if name not in SDK}


def trigger_of(function: Any) -> dict[str, Any]:
    trigger: dict[str, Any] = function.get_trigger().get_dict_repr()
    return trigger


def test_without_choices_the_names_and_paths_are_those_of_the_contract(tmp_path: Path) -> None:
    functions = registered(tmp_path)
    assert trigger_of(functions["api_operations"])["route"] == "operations/{*rest}"
    assert trigger_of(functions["operation"])["orchestration"] == "operation"
    assert functions.keys() >= QUEUES
    assert find_dependency("payments") is not None


def test_the_host_passes_on_methods_that_no_route_has(tmp_path: Path) -> None:
    methods = trigger_of(registered(tmp_path)["api_operations"])["methods"]
    assert {"HEAD", "OPTIONS", "PUT"} <= {getattr(method, "value", method) for method in methods}


def test_handlers_are_refused_where_no_feature_runs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_retry.app.hook", lambda _: "")
    with pytest.raises(StartError, match=r"register\(handlers\): this app lacks the feature"):
        registered(tmp_path, handlers=["orders"])


def test_all_routes_are_below_the_route_prefix_also_in_the_description(tmp_path: Path) -> None:
    functions = registered(tmp_path, route_prefix="/platform/retries/")
    routes = [route for each in functions.values() if (route := trigger_of(each).get("route"))]
    assert len(routes) > 15
    assert all(route.startswith("platform/retries/") for route in routes)
    assert all(path.startswith("/api/platform/retries/") for path in described()["paths"])


def test_the_routes_need_a_key_whatever_the_app_has_by_default(tmp_path: Path) -> None:
    app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    durable_retry.register(app, dependencies_file=tmp_path / "services.toml")
    triggers = [trigger_of(function) for function in app.get_functions()]
    levels = {each["route"]: each["authLevel"] for each in triggers if each["type"] == "httpTrigger"}
    assert {route for route, level in levels.items() if level != func.AuthLevel.FUNCTION} == {
        "health",
        "openapi.json",
        "dashboard/{*rest}",
    }


def test_below_a_prefix_of_its_own_what_no_route_takes_is_the_apis(tmp_path: Path) -> None:
    functions = registered(tmp_path, route_prefix="retries", function_prefix="retry_")
    assert trigger_of(functions["retry_unmatched_request"])["route"] == "retries/{*rest}"
    with_routes = [name for name in functions if name.startswith("retry_api_")]
    assert max(with_routes) < "retry_unmatched_request"  # the host asks functions in the order of their names
    assert "unmatched_request" not in registered(tmp_path)


def test_a_function_prefix_begins_every_name(tmp_path: Path) -> None:
    functions = registered(tmp_path, function_prefix="retry_")
    assert functions.keys() >= {"retry_api_operations", "retry_watch", "retry_operations_queue"}
    assert all(name.startswith("retry_") for name in functions)
    assert trigger_of(functions["retry_operation"])["orchestration"] == "retry_operation"
    assert trigger_of(functions["retry_attempt"])["activity"] == "retry_attempt"
    assert trigger_of(functions["retry_circuit_breaker"])["entityName"] == "retry_circuit_breaker"
    names = [entity.__durable_entity_name__ for entity in _entities()]
    assert len(names) > 1
    assert all(name.startswith("retry_") for name in names)


def test_an_app_that_is_loaded_again_does_not_get_its_prefix_twice(tmp_path: Path) -> None:
    registered(tmp_path, function_prefix="retry_", route_prefix="retries")
    functions = registered(tmp_path, function_prefix="retry_", route_prefix="retries")
    assert trigger_of(functions["retry_api_operations"])["route"] == "retries/operations/{*rest}"
    assert "api_operations" in registered(tmp_path)


def test_a_timers_retries_stay_when_it_is_renamed(tmp_path: Path) -> None:
    watch = registered(tmp_path, function_prefix="retry_")["retry_watch"]
    assert watch.get_settings_dict("retry_policy")["max_retry_count"] == "2"


def test_only_the_sources_that_are_named_are_there(tmp_path: Path) -> None:
    assert registered(tmp_path, sources=["queue"]).keys() >= QUEUES
    assert not registered(tmp_path, sources=[]).keys() & QUEUES


def test_an_app_without_the_console_has_the_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = registered(tmp_path)
    monkeypatch.setattr("durable_retry.plugins.entry_points", lambda **_group: ())
    _forget()
    functions = registered(tmp_path)
    assert functions.keys() >= {"api_operations", "api_dead_letters", "api_health", "watch", "operation"}
    left_out = {"api_search", "api_overview", "api_dashboard", "api_bulk_actions", "bulk_action"}
    assert not functions.keys() & left_out
    assert "/api/operations" in described()["paths"]
    assert "/api/overview" not in described()["paths"]
    assert "get" not in described()["paths"]["/api/operations"]
    assert functions.keys() < whole.keys()


def test_without_the_queue_nothing_can_be_put_on_it(tmp_path: Path) -> None:
    registered(tmp_path, sources=["queue"])
    assert "/api/operations/enqueue" in described()["paths"]
    described.cache_clear()
    registered(tmp_path, sources=[])
    assert not [path for path in described()["paths"] if path.endswith("/enqueue")]


def test_modules_with_handlers_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "registered_billing.py").write_text(
        "import durable_retry\n"
        "@durable_retry.operation('registered-bill', dependency='payments')\n"
        "async def bill(order):\n    return None\n"
    )
    monkeypatch.setattr("durable_retry.features.handlers.registry._handlers", {})
    registered(tmp_path, handlers=["registered_billing"])
    assert find_handler("registered-bill") is not None
    assert loading.handler_modules() == ("registered_billing",)


def test_every_mistake_is_told_at_once() -> None:
    chosen: dict[str, Any] = {
        "route_prefix": "a b",
        "function_prefix": "Retry-",
        "dependencies_file": 5,
        "handlers": "billing",
        "sources": ["qeueu", 5],
    }
    with pytest.raises(StartError) as refused:
        durable_retry.register("not an app", **chosen)  # type: ignore[arg-type]
    printed = str(refused.value)
    line = Path(__file__).read_text(encoding="utf-8").split('register("not an app"')[0].count("\n") + 1
    place = f"{Path(__file__).relative_to(ROOT)}:{line}"
    head, first, *_ = printed.splitlines()
    assert head.startswith("Durable Retry does not start, because of ")
    assert first == f"  {place}: register(app): must be a df.DFApp, not str"
    assert "register(route_prefix): must be a path of letters" in printed
    assert "register(function_prefix): must be at most 32 lower-case letters" in printed
    assert "register(dependencies_file): must be a path, not 5" in printed
    assert "register(handlers): must be a list of names of modules; 'billing' is none" in printed
    assert "not 'qeueu'; did you mean \"queue\"?" in printed


class OfAPlugin(SettingsGroup):
    heading = "A plugin"
    most_of_a_plugin: int = setting("The most.", 1)


def test_mistakes_of_every_group_of_settings_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {
        "AzureWebJobsStorage": "key-that-nobody-may-see",
        "HISTORY_RETENTION_DAYS": "seven",
        "HTTP_CONCURRENCY": "-3",
        "MOST_OF_A_PLUGIN": "all",
        "CALLER_KEYS": "bob=admin:12",
    }
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        "durable_retry.app.groups_of_plugins", lambda: (OfAPlugin, CallerSettings, RetentionSettings)
    )
    intake_settings.cache_clear()
    with pytest.raises(StartError) as refused:
        durable_retry.register(df.DFApp(), dependencies_file=tmp_path / "services.toml")
    printed = str(refused.value)
    named = [problem.pointer.split()[-1] for problem in refused.value.problems]
    assert sorted(named) == sorted(wrong)
    assert "nobody-may-see" not in printed


def test_mistakes_in_the_file_of_dependencies_are_told_beside_those_of_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HISTORY_RETENTION_DAYS", "seven")
    file = tmp_path / "wrong.toml"
    file.write_text(
        '[dependencies.payments]\nbase_url = "ftp://x"\n[dependencies.payments.retry]\nmax_attempt = 3\n'
    )
    with pytest.raises(StartError) as refused:
        durable_retry.register(df.DFApp(), dependencies_file=file)
    printed = str(refused.value)
    assert "app setting HISTORY_RETENTION_DAYS: must be a number" in printed
    assert f"{file}:2: dependencies.payments.base_url: " in printed
    assert f"{file}:4: dependencies.payments.retry.max_attempt: " in printed
    with pytest.raises(StartError, match=f"DEPENDENCIES_FILE: cannot read {tmp_path}: "):
        durable_retry.register(df.DFApp(), dependencies_file=tmp_path)


def test_a_missing_file_of_dependencies_comes_with_its_first_lines(tmp_path: Path) -> None:
    file = tmp_path / "dependencies.toml"
    with pytest.raises(StartError, match=f"DEPENDENCIES_FILE: there is no {file}: make it") as refused:
        durable_retry.register(df.DFApp(), dependencies_file=file)
    file.write_text(str(refused.value).partition("beginning with\n")[2])
    durable_retry.register(df.DFApp(), dependencies_file=file)
    assert find_dependency("payments") is not None


def test_a_blueprint_is_no_app() -> None:
    with pytest.raises(StartError, match=r"register\(app\): must be a df.DFApp, not Blueprint"):
        durable_retry.register(df.Blueprint())  # type: ignore[arg-type]


def test_a_name_that_the_app_has_already_is_refused(tmp_path: Path) -> None:
    app = df.DFApp()

    @app.activity_trigger(input_name="order")
    def submit(order: str) -> str:
        return order

    with pytest.raises(StartError, match=r"functions named submit already.*function_prefix"):
        durable_retry.register(app, dependencies_file=tmp_path / "services.toml")
    durable_retry.register(app, dependencies_file=tmp_path / "services.toml", function_prefix="retry_")
    names = [function.get_function_name() for function in app.get_functions()]
    assert {"submit", "retry_submit"} <= set(names)
    assert isinstance(app, func.FunctionRegister)


def test_a_second_register_names_the_first(tmp_path: Path) -> None:
    app = df.DFApp()
    durable_retry.register(app, dependencies_file=tmp_path / "services.toml")
    with pytest.raises(StartError) as refused:
        durable_retry.register(app, dependencies_file=tmp_path / "services.toml")
    (problem,) = refused.value.problems
    line = next(
        number
        for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "names_the_first" in text
    )
    assert problem.detail == f"was called before, at tests/unit/test_app.py:{line + 2}: call it once"


class Shop:
    def book(self, order: str) -> str:
        return order


def test_a_function_that_is_declared_behind_register_is_refused_as_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "check_later_ones", registry.check_later_ones)
    durable_retry.register(df.DFApp(), dependencies_file=tmp_path / "services.toml")
    with pytest.raises(StartError) as refused:
        durable_retry.operation(dependency="paymets", timeout=0)(Shop.book)
    details = [problem.detail for problem in refused.value.problems]
    assert [detail.split(" ")[0] for detail in details] == ["timeout", "names", "it"]
    assert 'did you mean "payments"' in details[1]
    assert find_handler("book") is None
    durable_retry.operation("book", dependency="payments")(Shop().book)
    assert find_handler("book") is not None


def run_alone(code: str, **env: str) -> list[str]:
    """Return the lines that code prints in an interpreter of its own."""
    return ran(
        [sys.executable, "-c", code], env={"PATH": os.environ["PATH"], **env}, check=True
    ).stdout.splitlines()


def test_a_start_builds_few_of_the_models_of_answers() -> None:
    """To build all 100 takes a tenth of a start, and most processes use a few."""
    code = """
import function_app
from durable_retry.base.answers import Answer

def derived(model):
    return [model, *(below for each in model.__subclasses__() for below in derived(each))]

print(*(model.__name__ for model in derived(Answer) if model.__pydantic_complete__))
"""
    (built,) = run_alone(code, FLAKY_TARGET_URL="http://127.0.0.1:9")
    assert len(built.split()) <= 5


def test_importing_the_package_loads_nothing_of_the_app() -> None:
    found = run_alone("import sys, durable_retry; print(*sys.modules); print(dir(durable_retry))")
    loaded = found[0].split()
    assert [name for name in loaded if name.startswith("durable_retry")] == ["durable_retry"]
    assert not {"azure.functions", "durabletask", "httpx", "pydantic"} & set(loaded)
    assert "'register'" in found[1]


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'registre'"):
        durable_retry.registre  # noqa: B018 # type: ignore[attr-defined]


CALLED_BY_NAME = {
    "call_activity",
    "call_sub_orchestrator",
    "schedule_new_orchestration",
    "EntityInstanceId",
}
"""What takes the name of a function first."""


def test_every_function_that_is_called_by_name_is_called_with_the_prefix() -> None:
    bare = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("durable_retry", "orchestrators", "activities", "entities")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in CALLED_BY_NAME
        and not ast.unparse(node.args[0]).startswith("function_name(")
    }
    assert bare == set()


@pytest.mark.parametrize(
    ("chosen", "level"), [(logging.NOTSET, logging.WARNING), (logging.INFO, logging.INFO)]
)
def test_the_sdk_has_no_line_for_each_turn_unless_the_app_wants_them(chosen: int, level: int) -> None:
    sdk = logging.getLogger("azure.durable_functions")
    before = sdk.level
    try:
        sdk.setLevel(chosen)
        harden_runtime()
        assert sdk.level == level
    finally:
        sdk.setLevel(before)


def test_what_names_a_feature_that_was_taken_out_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    absent = {
        "MAX_BATCH_BYTES": "workflows",
        "WEBSITE_AUTH_ENABLED": "callers",
        "lookup": "lookup",
        "order_key": "order",
    }
    monkeypatch.setattr("durable_retry.plugins.names_of_absent", lambda: absent)
    monkeypatch.setattr("durable_retry.rules.config.dependency.models_of_features", dict)
    monkeypatch.setenv("MAX_BATCH_BYTES", "1000")
    monkeypatch.setenv("WEBSITE_AUTH_ENABLED", "False")  # what is off needs no feature
    monkeypatch.setenv("INTAKE_ORDER", "order_key")
    (tmp_path / "services.toml").write_text(f'{DEPENDENCIES}lookup = {{ path = "/charges" }}\n')
    dependency_table.cache_clear()
    try:
        with pytest.raises(StartError) as raised:
            registered(tmp_path)
    finally:
        dependency_table.cache_clear()
    problems = {problem.pointer.rpartition(" ")[2]: problem.detail for problem in raised.value.problems}
    assert problems == {
        "MAX_BATCH_BYTES": "is of the feature workflows, which this app lacks",
        "INTAKE_ORDER": "must not be order_key, which is of the feature order, which this app lacks",
        "dependencies.payments.lookup": (
            "is not a known key, it is of the feature lookup, which this app lacks"
        ),
    }
