from pathlib import Path

import pytest

from durable_retry.settings.app import (
    OWN_HANDLERS,
    AppSettings,
    SettingsError,
    function_timeout_seconds,
    platform_queue_prefixes,
    read_settings,
)


def test_nothing_set_gives_the_contracts_defaults() -> None:
    settings = read_settings({})
    assert settings.dependencies_file.name == "dependencies.toml"
    assert settings.max_body_bytes == 64 * 1024
    assert settings.tenant_header is None
    assert settings.handler_modules == OWN_HANDLERS


def test_every_bad_number_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({"MAX_BODY_BYTES": "64k", "RESPONSE_READ_LIMIT_BYTES": "0", "HANDLERS": "a"})
    assert [problem.pointer for problem in caught.value.problems] == [
        "MAX_BODY_BYTES",
        "RESPONSE_READ_LIMIT_BYTES",
    ]


def test_a_body_that_no_dead_letter_could_hold_stops_the_start() -> None:
    with pytest.raises(SettingsError, match=r"MAX_BODY_BYTES.*at most 131072, not '1048576'"):
        read_settings({"MAX_BODY_BYTES": "1048576"})


def test_handlers_are_added_to_the_apps_own() -> None:
    settings = read_settings({"HANDLERS": " billing.handlers, shipping ,"})
    assert settings.handler_modules == (*OWN_HANDLERS, "billing.handlers", "shipping")


def test_an_absolute_path_of_dependencies_is_taken_as_it_is(tmp_path: Path) -> None:
    settings: AppSettings = read_settings({"DEPENDENCIES_FILE": str(tmp_path / "d.toml")})
    assert settings.dependencies_file == tmp_path / "d.toml"


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


def test_a_function_timeout_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text('{"functionTimeout": "5 minutes"}')
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
