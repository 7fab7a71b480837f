"""What can be checked of infra/ without the Bicep compiler; docs/deploying.md says what was not run."""

import json
import re
from pathlib import Path

import pytest

from tests.unit.infra.bicep import BicepFile

INFRA = Path(__file__).parents[3] / "infra"
MAIN = BicepFile.read(INFRA / "main.bicep")
SHAPES = json.loads((Path(__file__).parent / "arm_types.json").read_text())["shapes"]
FILES = [BicepFile.read(path) for path in sorted(INFRA.rglob("*.bicep"))]

# https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
ROLES = {
    "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": "Storage Table Data Contributor",
    "0ad04412-c4d5-4796-b79c-f76d14c8d402": "Durable Task Data Contributor",
    "3913510d-42f4-4e42-8a64-420c390055eb": "Monitoring Metrics Publisher",
    "974c5e8b-45b9-4653-ba55-5f855dd0fb88": "Storage Queue Data Contributor",
    "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": "Storage Blob Data Owner",
}
ROLE_LINE = re.compile(r"'([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})' // (.+)")

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.path.name)


@each_file
def test_a_file_holds_to_the_grammar(file: BicepFile) -> None:
    assert file.mistakes() == []


@pytest.mark.parametrize("text", [b"param name string =\n", b"var a = {\n  b: 1\n", b"resource r = {}\n"])
def test_the_grammar_reports_mistakes(text: bytes) -> None:
    assert BicepFile(INFRA, text).mistakes() != []


@each_file
def test_every_name_is_declared_and_every_parameter_and_variable_used(file: BicepFile) -> None:
    assert file.names_used() <= file.symbols() | file.bound_names()
    assert file.values() <= file.names_used()


@each_file
def test_modules_get_the_parameters_that_they_declare(file: BicepFile) -> None:
    for path, given in file.modules().values():
        declared = BicepFile.read(path).parameters()
        assert given <= declared.keys()
        assert {name for name, needed in declared.items() if needed} <= given


@each_file
def test_what_is_taken_of_a_module_is_an_output_of_it(file: BicepFile) -> None:
    modules = {symbol: BicepFile.read(path) for symbol, (path, _) in file.modules().items()}
    for symbol, output in file.outputs_used():
        assert output in modules[symbol].outputs()


@each_file
def test_resources_have_the_properties_of_their_types(file: BicepFile) -> None:
    """The types are those of Azure's SDKs (`tests/unit/infra/arm_types.py`)."""
    assert file.misfits(SHAPES) == []


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("storage", "minimumTlsVersion: 'TLS1_2'", "minTlsVersion: 'TLS1_2'"),
        ("storage", "kind: 'StorageV2'", "kind: 'StorageV3'"),
        ("storage", "allowSharedKeyAccess: false", "allowSharedKeyAccess: 'false'"),
        ("storage", "deleteRetentionPolicy: {", "deletePolicy: {"),
        ("storage", "{ category: 'StorageWrite'", "{ name: 'StorageWrite'"),
        ("storage", "isPrivate ? 'Disabled'", "isPrivate ? 'Off'"),
        ("app", "minTlsVersion:", "minTls:"),
        ("app", "perInstanceConcurrency:", "httpPerInstanceConcurrency:"),
        ("app", "perInstanceConcurrency: httpPerInstanceConcurrency", "perInstanceConcurrency: '100'"),
        ("app", "properties: { allow: false }", "properties: { allowed: false }"),
        ("app", "userAssignedIdentityResourceId:", "identity:"),
        ("app", "virtualNetworkSubnetId: empty", "subnetId: empty"),
        ("network", "privateDnsZoneId:", "zoneId:"),
        ("network", "addressPrefixes: [addressPrefix]", "addressPrefixes: 'addressPrefix'"),
        ("network", "delegations: [", "delegation: ["),
        ("scheduler", "ipAllowlist: ipAllowlist", "ipAllowList: ipAllowlist"),
    ],
)
def test_a_property_that_its_type_does_not_have_is_found(name: str, right: str, wrong: str) -> None:
    path = INFRA / "modules" / f"{name}.bicep"
    text = path.read_text()
    assert right in text
    assert BicepFile(path, text.replace(right, wrong).encode()).misfits(SHAPES) != []


def test_every_file_is_a_module_of_the_deployment() -> None:
    used = {path for path, _ in MAIN.modules().values()}
    assert used == {file.path for file in FILES} - {MAIN.path}


def test_no_key_or_password_opens_the_account_or_the_site() -> None:
    text = "".join(file.text.decode() for file in FILES)
    assert "listKeys" not in text
    assert "allowSharedKeyAccess: true" not in text
    assert "for name in ['scm', 'ftp']" in text
    assert "properties: { allow: false }" in text


@pytest.mark.parametrize("name", ["app", "storage"])
def test_what_happens_to_keys_and_code_is_logged(name: str) -> None:
    file = BicepFile.read(INFRA / "modules" / f"{name}.bicep")
    assert any(kind == "Microsoft.Insights/diagnosticSettings" for kind, _ in file.resources())


def test_each_role_has_the_id_that_is_documented_and_no_other_is_given() -> None:
    found = dict(ROLE_LINE.findall("".join(file.text.decode() for file in FILES)))
    assert found == ROLES
