import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped] # ships no types, and one small file is read

from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.catalogue import groups
from durable_retry.settings.storage_account import IdentityAccount, ManagedIdentity, storage_account
from tests.support.narrowing import of_type
from tests.unit.infra.bicep import BicepFile

ROOT = Path(__file__).parents[4]
APP = BicepFile.read(ROOT / "infra/modules/app.bicep")
SETTINGS = BicepFile.read(ROOT / "infra/modules/settings.bicep")
MAIN = BicepFile.read(ROOT / "infra/main.bicep")
PARAMETERS: dict[str, Any] = json.loads((ROOT / "infra/main.parameters.json").read_text())["parameters"]
OWN: dict[str, str] = PARAMETERS["appSettings"]["value"]
HOST: dict[str, Any] = json.loads((ROOT / "host.json").read_text())
DEPENDENCIES = (ROOT / "dependencies.toml").read_text()

HOST_PREFIX = "AzureFunctionsJobHost__"
OF_OTHERS = {"DURABLE_TASK_SCHEDULER_CONNECTION_STRING"}  # the Durable extension's


def settings_made() -> set[str]:
    kinds = [name for name in SETTINGS.values() if name.endswith("Settings") and name != "appSettings"]
    return {key for kind in kinds for key in SETTINGS.keys_of(kind)}


def test_the_parameters_are_those_of_main() -> None:
    declared = MAIN.parameters()
    assert PARAMETERS.keys() <= declared.keys()
    assert {name for name, needed in declared.items() if needed} <= PARAMETERS.keys()


def test_every_setting_is_one_that_somebody_reads() -> None:
    catalogued = {setting.name for group in groups() for setting in group.described()}
    of_dependencies = set(re.findall(r"\$\{(\w+)\}", DEPENDENCIES))
    over_host = {name for name in settings_made() if name.startswith(HOST_PREFIX)}
    assert settings_made() | OWN.keys() <= catalogued | of_dependencies | OF_OTHERS | over_host


def test_a_setting_over_host_json_is_beside_one_that_stands_there() -> None:
    for name in settings_made():
        if name.startswith(HOST_PREFIX):
            place = HOST
            for part in name.split("__")[1:-1]:
                place = place[part]
            assert name == "AzureFunctionsJobHost__telemetryMode" or "type" in place


def test_open_telemetry_is_switched_on_in_the_host_and_in_the_worker_together() -> None:
    """As `integration/deployment/test_worker_contract.py` runs the worker."""
    switches = SETTINGS.keys_of("openTelemetrySettings")
    assert switches == {"AzureFunctionsJobHost__telemetryMode", "PYTHON_ENABLE_OPENTELEMETRY"}


def test_storage_is_reached_by_the_apps_identity() -> None:
    given = dict.fromkeys(SETTINGS.keys_of("storageSettings"), "x") | {
        "AzureWebJobsStorage__credential": "managedidentity"
    }
    account = of_type(IdentityAccount, storage_account(given))
    assert account.identity == ManagedIdentity(client_id="x")


def test_the_shipped_dependencies_start_with_the_shipped_parameters() -> None:
    environ = {name: value.removeprefix(f"${{{name}=").removesuffix("}") for name, value in OWN.items()}
    assert (ROOT / environ["DEPENDENCIES_FILE"]).read_text() == DEPENDENCIES
    assert parse_config(DEPENDENCIES, environ, function_timeout_seconds=300.0).dependencies


def test_the_scheduler_holds_the_task_hub_that_host_json_names() -> None:
    scheduler = BicepFile.read(ROOT / "infra/modules/scheduler.bicep")
    assert HOST["extensions"]["durableTask"]["hubName"] in scheduler.strings()


def test_the_app_runs_on_the_python_that_is_tested() -> None:
    version = (ROOT / ".python-version").read_text().strip()
    assert (
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == f">={version}"
    )
    assert version in APP.strings()


def test_azd_finds_the_app_by_its_tag() -> None:
    project = yaml.safe_load((ROOT / "azure.yaml").read_text())
    assert re.fullmatch(r"[a-z0-9][-a-z0-9]*[a-z0-9]", project["name"])
    (name, service) = next(iter(project["services"].items()))
    assert service == {"project": ".", "language": "python", "host": "function", "remoteBuild": True}
    strings = MAIN.strings()
    assert strings[strings.index("azd-service-name") + 1] == name
