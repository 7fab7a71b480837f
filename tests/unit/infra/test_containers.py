"""The container's files against what the app, the host and the package have; nothing here builds them."""

import json
import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped] # ships no types, and one small file is read

from durable_retry.engine.base.names import OPERATIONS_QUEUE
from durable_retry.settings.catalogue import GROUPS
from durable_retry.settings.storage_account import IdentityAccount, SurroundingIdentity, storage_account
from scripts.package import deployed_files

ROOT = Path(__file__).parents[3]
INFRA = ROOT / "infra"
DOCKERFILE = (INFRA / "Dockerfile").read_text()
DURABLE: dict[str, Any] = json.loads((ROOT / "host.json").read_text())["extensions"]["durableTask"]
MANIFEST: list[dict[str, Any]] = list(yaml.safe_load_all((INFRA / "kubernetes.yaml").read_text()))
OBJECTS = {each["kind"]: each for each in MANIFEST}
POD = OBJECTS["Deployment"]["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]


def test_the_image_has_the_python_that_is_tested() -> None:
    python = (ROOT / ".python-version").read_text().strip()
    assert f"FROM mcr.microsoft.com/azure-functions/python:4-python{python}\n" in DOCKERFILE


def test_the_image_installs_what_is_deployed_where_the_worker_looks_for_it() -> None:
    copied = set(re.findall(r"(\S+\.txt) ", DOCKERFILE)) & {"requirements.txt", "constraints.txt"}
    assert copied == {"requirements.txt", "constraints.txt"}
    assert {Path(name) for name in copied} <= set(deployed_files())
    own = re.findall(r"(?m)^\./(\w+)/", (ROOT / "requirements.txt").read_text())
    assert own
    assert all(f"COPY {folder} /home/site/wwwroot/{folder}\n" in DOCKERFILE for folder in own)
    assert "RUN cd /home/site/wwwroot && " in DOCKERFILE
    assert "--target /home/site/wwwroot/.python_packages/lib/site-packages" in DOCKERFILE


def test_the_objects_name_each_other() -> None:
    name = "durable-retry"
    assert {each["metadata"]["name"] for each in MANIFEST} == {name}
    labels = POD["metadata"]["labels"]
    assert OBJECTS["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert OBJECTS["Service"]["spec"]["selector"].items() <= labels.items()
    assert OBJECTS["ScaledObject"]["spec"]["scaleTargetRef"] == {"name": name}
    assert POD["spec"]["serviceAccountName"] == name
    assert CONTAINER["envFrom"][0]["configMapRef"]["name"] == name
    references = {each["authenticationRef"]["name"] for each in OBJECTS["ScaledObject"]["spec"]["triggers"]}
    assert references == {name}


def test_every_port_is_the_one_that_the_image_listens_on() -> None:
    probes = [CONTAINER[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]
    ports = {(probe.get("tcpSocket") or probe["httpGet"])["port"] for probe in probes}
    ports |= {each["containerPort"] for each in CONTAINER["ports"]}
    ports |= {each["port"] for each in OBJECTS["Service"]["spec"]["ports"]}
    assert ports == {80}
    assert "targetPort: 80\n" in (INFRA / "modules/container.bicep").read_text()


def test_every_setting_is_one_that_somebody_reads() -> None:
    catalogued = {setting.name for group in GROUPS for setting in group.described()}
    of_dependencies = set(re.findall(r"\$\{(\w+)\}", (ROOT / "dependencies.toml").read_text()))
    assert OBJECTS["ConfigMap"]["data"].keys() <= catalogued | of_dependencies | {
        "AzureFunctionsWebHost__hostid"
    }


def test_storage_is_reached_by_the_pods_identity() -> None:
    account = storage_account(OBJECTS["ConfigMap"]["data"])
    assert isinstance(account, IdentityAccount)
    assert account.identity == SurroundingIdentity()
    assert POD["metadata"]["labels"]["azure.workload.identity/use"] == "true"


def test_every_queue_of_the_task_hub_and_of_the_app_scales_it() -> None:
    hub = DURABLE["hubName"].lower()
    partitions = DURABLE["storageProvider"].get("partitionCount", 4)
    wanted = {f"{hub}-control-{number:02}" for number in range(partitions)}
    triggers = [each["metadata"] for each in OBJECTS["ScaledObject"]["spec"]["triggers"]]
    assert {each["queueName"] for each in triggers} == wanted | {f"{hub}-workitems", OPERATIONS_QUEUE}
    assert {each["queueLengthStrategy"] for each in triggers} == {"visibleonly"}
