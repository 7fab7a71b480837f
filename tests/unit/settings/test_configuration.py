import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest

from durable_retry.base.validation import Problem
from durable_retry.plugins import hook
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.settings import configuration
from durable_retry.settings.app import AppSettings
from durable_retry.settings.configuration import (
    Registration,
    api_path,
    check_host_json,
    dependencies_path,
    find_app_root,
    function_timeout_seconds,
    platform_queue_prefixes,
    use_registration,
)
from durable_retry.settings.group import SettingsError
from durable_retry.settings.mistakes import Mistakes, StartError
from durable_retry.settings.retention import retention


@pytest.fixture(autouse=True)
def no_registration() -> Iterator[None]:
    use_registration(Registration())
    yield
    use_registration(Registration())


def test_nothing_set_gives_the_contracts_defaults() -> None:
    settings = AppSettings.read({})
    assert dependencies_path(settings).name == "dependencies.toml"
    assert settings.max_body_bytes == 64 * 1024


def test_every_bad_number_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        AppSettings.read({"MAX_BODY_BYTES": "64k", "RESPONSE_READ_LIMIT_BYTES": "0", "APP_VERSION": "a"})
    assert [problem.pointer for problem in caught.value.problems] == [
        "MAX_BODY_BYTES",
        "RESPONSE_READ_LIMIT_BYTES",
    ]


def test_a_body_that_no_dead_letter_could_hold_stops_the_start() -> None:
    with pytest.raises(SettingsError, match=r"MAX_BODY_BYTES.*at most 131072, not '1048576'"):
        AppSettings.read({"MAX_BODY_BYTES": "1048576"})


@pytest.mark.parametrize(
    "url", ["traces.example.com/{trace_id}", "https://traces.example.com/", "file:///{trace_id}"]
)
def test_a_trace_url_that_leads_to_no_trace_is_named(url: str) -> None:
    with pytest.raises(SettingsError, match=r"TRACE_URL.*\{trace_id\}"):
        AppSettings.read({"TRACE_URL": url})


def test_a_trace_url_has_a_place_for_the_trace() -> None:
    assert AppSettings.read({"TRACE_URL": "https://x/{trace_id}"}).trace_url == "https://x/{trace_id}"
    assert AppSettings.read({"TRACE_URL": "HTTPS://x/{trace_id}"}).trace_url == "HTTPS://x/{trace_id}"


def test_the_app_s_version_is_a_text_or_that_of_a_package() -> None:
    assert AppSettings.read({"APP_VERSION": "2026-11-29.3"}).app_version == "2026-11-29.3"
    assert AppSettings.read({"APP_VERSION": "package:httpx"}).app_version == httpx.__version__
    assert AppSettings.read({}).app_version == ""


@pytest.mark.parametrize("named", ["package:no-such-package", "package:"])
def test_a_version_of_a_package_that_is_not_installed_is_named(named: str) -> None:
    with pytest.raises(SettingsError, match=r"APP_VERSION.*must name a package that is installed"):
        AppSettings.read({"APP_VERSION": named})


def test_the_file_of_dependencies_is_the_settings_then_the_apps_then_the_default() -> None:
    use_registration(Registration(dependencies_file="services.toml"))
    assert dependencies_path(AppSettings.read({})).name == "services.toml"
    assert dependencies_path(AppSettings.read({"DEPENDENCIES_FILE": "other.toml"})).name == "other.toml"


@pytest.mark.parametrize(
    ("apps", "found"),
    [(("site", "named", "here"), "named"), (("site", "here"), "here"), (("site",), "site")],
)
def test_the_app_is_where_the_host_says_or_in_the_current_folder_or_around_the_package(
    tmp_path: Path, apps: tuple[str, ...], found: str
) -> None:
    for folder in apps:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "host.json").write_text("{}")
    environ = {"AzureWebJobsScriptRoot": str(tmp_path / "named")}
    root = find_app_root(environ, tmp_path / "site" / "durable_retry", tmp_path / "here")
    assert root == tmp_path / found


def test_an_app_without_host_json_is_in_the_current_folder(tmp_path: Path) -> None:
    assert find_app_root({}, tmp_path / "site" / "durable_retry", tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("host", "chosen", "path"),
    [
        ("{}", "", "/api"),
        ("{}", "retries", "/api/retries"),
        ('{"extensions": {"http": {"routePrefix": ""}}}', "", ""),
        ('{"extensions": {"http": {"routePrefix": "/v1/"}}}', "retries", "/v1/retries"),
    ],
)
def test_the_api_is_below_the_prefix_of_the_host_and_that_of_the_app(
    tmp_path: Path, host: str, chosen: str, path: str
) -> None:
    (tmp_path / "host.json").write_text(host)
    use_registration(Registration(route_prefix=chosen))
    assert api_path(tmp_path / "host.json") == path


def test_an_absolute_path_of_dependencies_is_taken_as_it_is(tmp_path: Path) -> None:
    settings = AppSettings.read({"DEPENDENCIES_FILE": str(tmp_path / "d.toml")})
    assert dependencies_path(settings) == tmp_path / "d.toml"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ('{"functionTimeout": "00:05:00"}', 300.0),
        ('{"functionTimeout": "1.00:00:01"}', 86_401.0),
        ('{"functionTimeout": "-1"}', None),
        ("{}", 300.0),
    ],
)
def test_the_function_timeout_is_read_as_the_host_reads_it(
    tmp_path: Path, text: str, seconds: float | None
) -> None:
    (tmp_path / "host.json").write_text(text)
    assert function_timeout_seconds(tmp_path / "host.json") == seconds


@pytest.mark.parametrize("text", ["5 minutes", "00:0٣:00"])
def test_a_function_timeout_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "host.json").write_text(json.dumps({"functionTimeout": text}))
    with pytest.raises(SettingsError, match="functionTimeout"):
        function_timeout_seconds(tmp_path / "host.json")


@pytest.mark.parametrize(
    ("written", "environ", "prefix"),
    [
        ('{"hubName": "Mine"}', {}, "mine-"),
        ('{"hubName": "%HUB%"}', {"HUB": "Staging"}, "staging-"),
        (
            '{"hubName": "Mine"}',
            {"AzureFunctionsJobHost__extensions__durableTask__hubName": "Other"},
            "other-",
        ),
        ("{}", {}, "testhubname-"),
    ],
)
def test_the_task_hubs_queues_go_by_its_name(
    tmp_path: Path, written: str, environ: dict[str, str], prefix: str
) -> None:
    (tmp_path / "host.json").write_text(f'{{"extensions": {{"durableTask": {written}}}}}')
    assert platform_queue_prefixes(environ, tmp_path / "host.json") == (prefix, "azure-webjobs-")


OVER_WINDOW = "AzureFunctionsJobHost__extensions__durableTask__entityMessageReorderWindowInMinutes"


@pytest.mark.parametrize(
    ("durable_task", "environ", "is_refused"),
    [
        ("{}", {}, True),
        ('{"entityMessageReorderWindowInMinutes": 30}', {}, True),
        ('{"entityMessageReorderWindowInMinutes": 0}', {}, False),
        ('{"entityMessageReorderWindowInMinutes": 0}', {OVER_WINDOW: "5"}, True),
        ("{}", {OVER_WINDOW: "0"}, False),
    ],
)
def test_a_window_in_which_entity_calls_are_dropped_is_refused(
    tmp_path: Path,
    durable_task: str,
    environ: dict[str, str],
    is_refused: bool,  # noqa: FBT001 - a parameter
) -> None:
    (tmp_path / "host.json").write_text(f'{{"extensions": {{"durableTask": {durable_task}}}}}')
    refusal = pytest.raises(SettingsError, match="entityMessageReorderWindowInMinutes: must be 0")
    with refusal if is_refused else nullcontext():
        check_host_json(environ, tmp_path / "host.json")


@pytest.mark.parametrize(("text", "detail"), [(None, "is missing in "), ("{bad", "cannot be read as JSON: ")])
def test_a_host_json_that_is_missing_or_broken_is_one_readable_line(
    tmp_path: Path, text: str | None, detail: str
) -> None:
    if text is not None:
        (tmp_path / "host.json").write_text(text)
    mistakes = Mistakes(tmp_path)
    with mistakes.gathered():
        check_host_json({}, tmp_path / "host.json")
    with pytest.raises(StartError) as refused:
        mistakes.refuse()
    head, line = str(refused.value).splitlines()
    assert head == "Durable Retry does not start, because of 1 mistake:"
    assert line.startswith(f"  host.json: {detail}")
    assert configuration.function_timeout_seconds(tmp_path / "host.json") == 300


GOOD = '[dependencies.payments]\nbase_url = "http://127.0.0.1:9"\n'


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """Loads the app with a file of a text, and returns its mistakes, one a line."""

    def load(text: str) -> str:
        (tmp_path / "dependencies.toml").write_text(text)
        settings = AppSettings(dependencies_file=str(tmp_path / "dependencies.toml"))
        monkeypatch.setattr(configuration, "app_settings", lambda: settings)
        monkeypatch.setattr(configuration, "hook", lambda name: "" if name == "handlers" else hook(name))
        monkeypatch.setattr(configuration, "registered_handlers", dict)
        monkeypatch.setattr(configuration, "_config", None)
        mistakes = Mistakes(tmp_path)
        configuration.load_app(mistakes)
        return "\n".join(f"{problem.pointer}: {problem.detail}" for problem in mistakes.problems)

    return load


def test_a_good_file_is_there_for_everybody(start: Callable[[str], str]) -> None:
    assert start(GOOD) == ""
    assert configuration.find_dependency("payments") is not None
    assert configuration.find_dependency("nobody") is None


def test_what_may_not_be_meant_is_logged(
    start: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    endless = "retry.max_attempts = -1\ntimeouts.deadline_seconds = 0\n"
    assert start(GOOD + endless) == ""
    assert "dependencies.payments.retry.max_attempts: -1 without a deadline" in caplog.text


@pytest.mark.shows("A23")
def test_every_mistake_is_listed_with_its_key_path(start: Callable[[str], str]) -> None:
    bad = '[dependencies.payments]\nbase_url = "ftp://x"\n[dependencies.payments.retry]\nmax_attempt = 3\n'
    printed = start(bad)
    assert "dependencies.toml:2: dependencies.payments.base_url: " in printed
    assert "dependencies.toml:4: dependencies.payments.retry.max_attempt: " in printed


def test_no_mistake_hides_what_the_app_finds_where_it_runs(start: Callable[[str], str]) -> None:
    text = f'{GOOD}colour = 1\nfallback = "b"\nschema = "gone.json"\n[dependencies.b]\nbase_url = "ftp://b"\n'
    printed = start(text + 'fallback = "gone"\n')
    assert [line.partition("dependencies.toml:")[2] for line in printed.splitlines()] == [
        "3: dependencies.payments.colour: is not a known key",
        "7: dependencies.b.base_url: must begin with http:// or https://, not 'ftp://b'",
        (
            "5: dependencies.payments.schema: cannot read gone.json in the app's folder: "
            "No such file or directory"
        ),
        "8: dependencies.b.fallback: no dependency has the name gone",
    ]


@pytest.mark.usefixtures("no_handlers")
@pytest.mark.parametrize(
    ("setting", "told"), [("MAX_BODY_BYTES", ["app setting MAX_BODY_BYTES"]), ("HISTORY_RETENTION_DAYS", [])]
)
def test_a_mistake_in_a_setting_hides_none_in_the_file_that_another_one_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str, told: list[str]
) -> None:
    """The start itself reads the settings of features, such as how long histories are kept."""
    (tmp_path / "mine.toml").write_text(f"colour = 1\n{GOOD}")
    monkeypatch.setenv("DEPENDENCIES_FILE", str(tmp_path / "mine.toml"))
    monkeypatch.setenv(setting, "64k")
    monkeypatch.setattr(configuration, "_config", None)
    for settings in (configuration.app_settings, retention):
        settings.cache_clear()
    mistakes = Mistakes(tmp_path)
    configuration.load_app(mistakes)
    configuration.app_settings.cache_clear()
    assert [problem.pointer for problem in mistakes.problems] == [*told, "mine.toml:1: colour"]


def test_an_attempt_that_cannot_fit_the_function_timeout_is_reported_with_the_sum(
    start: Callable[[str], str],
) -> None:
    printed = start(GOOD + "timeouts = { attempt_seconds = 295 }\n")
    assert "305 s" in printed
    assert "functionTimeout" in printed


def test_mistakes_in_the_file_are_listed_beside_a_wrong_time_limit(
    start: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = Problem("host.json/functionTimeout", "must look like 00:05:00, not '5 minutes'")

    no_time = Mock(side_effect=SettingsError((wrong,)))
    monkeypatch.setattr(configuration, "function_timeout_seconds", no_time)
    printed = start('[dependencies.payments]\nbase_url = "ftp://x"\nretries = 3\n')
    for mistake in ("host.json:1: functionTimeout", "payments.base_url", "payments.retries"):
        assert mistake in printed
    assert wrong.detail in start(GOOD)
    (tmp_path / "dependencies.toml").unlink()
    mistakes = Mistakes(tmp_path)
    assert configuration.read_dependencies(tmp_path / "dependencies.toml", mistakes) is None
    assert [problem.detail.partition(" ")[0] for problem in mistakes.problems] == ["must", "there"]


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = AppSettings(dependencies_file=str(tmp_path / "missing.toml"))
    monkeypatch.setattr(configuration, "app_settings", lambda: settings)
    mistakes = Mistakes(tmp_path)
    configuration.load_app(mistakes)
    assert "missing.toml" in mistakes.problems[0].detail


def test_another_configuration_can_stand_in_for_a_while() -> None:
    with configuration.using(Config({})):
        assert configuration.find_dependency("payments") is None
