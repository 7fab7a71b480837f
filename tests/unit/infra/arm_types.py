"""Writes tests/unit/infra/arm_types.json: the properties of the resource types in infra/, as in Azure's SDKs.

    python -m tests.unit.infra.arm_types PACKAGES

PACKAGES is a site-packages folder with the `azure-mgmt-*` packages of `MODELS`, in an environment of
their own: they are large, and nothing else needs them. What infra/ does not use is left out.
"""

import ast
import json
import re
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

INFRA = Path(__file__).parents[3] / "infra"
TARGET = Path(__file__).with_name("arm_types.json")

MODELS = {
    "Microsoft.DurableTask/schedulers": ("durabletask", "Scheduler"),
    "Microsoft.DurableTask/schedulers/taskHubs": ("durabletask", "TaskHub"),
    "Microsoft.Network/privateDnsZones": ("privatedns", "PrivateZone"),
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks": ("privatedns", "VirtualNetworkLink"),
    "Microsoft.Network/privateEndpoints": ("network", "PrivateEndpoint"),
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups": ("network", "PrivateDnsZoneGroup"),
    "Microsoft.Network/virtualNetworks": ("network", "VirtualNetwork"),
    "Microsoft.OperationalInsights/workspaces": ("loganalytics", "Workspace"),
    "Microsoft.Storage/storageAccounts": ("storage", "StorageAccountCreateParameters"),
    "Microsoft.Storage/storageAccounts/blobServices": ("storage", "BlobServiceProperties"),
    "Microsoft.Storage/storageAccounts/blobServices/containers": ("storage", "BlobContainer"),
    "Microsoft.Storage/storageAccounts/queueServices": ("storage", "QueueServiceProperties"),
    "Microsoft.Storage/storageAccounts/queueServices/queues": ("storage", "StorageQueue"),
    "Microsoft.Web/serverfarms": ("web", "AppServicePlan"),
    "Microsoft.Web/sites": ("web", "Site"),
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": (
        "web",
        "CsmPublishingCredentialsPoliciesEntity",
    ),
    "Microsoft.Web/sites/config": ("web", "StringDictionary"),
}

OLDER: dict[str, Any] = {
    "Microsoft.Authorization/roleAssignments": {
        "properties": {"principalId": "str", "principalType": "str", "roleDefinitionId": "str"}
    },
    "Microsoft.Insights/components": {
        "kind": "str",
        "location": "str",
        "properties": {"Application_Type": "str", "DisableLocalAuth": "bool", "WorkspaceResourceId": "str"},
        "tags": {"*": "str"},
    },
    "Microsoft.Insights/workbooks": {
        "kind": "str",
        "location": "str",
        "properties": {"category": "str", "displayName": "str", "serializedData": "str", "sourceId": "str"},
        "tags": {"*": "str"},
    },
    "Microsoft.Insights/diagnosticSettings": {
        "properties": {"workspaceId": "str", "logs": {"[]": {"category": "str", "enabled": "bool"}}}
    },
    "Microsoft.ManagedIdentity/userAssignedIdentities": {"location": "str", "tags": {"*": "str"}},
    "Microsoft.Resources/resourceGroups": {"location": "str", "tags": {"*": "str"}},
}
"""Types whose SDKs have models of an older form; copied by hand, as far as they are used."""


class Package:
    """The models of one SDK, read from its source."""

    def __init__(self, folder: Path) -> None:
        models = ast.parse((folder / "_models.py").read_text(encoding="utf-8"))
        enums = ast.parse((folder / "_enums.py").read_text(encoding="utf-8"))
        self.classes = {node.name: node for node in ast.walk(models) if isinstance(node, ast.ClassDef)}
        self.words = {
            node.name: sorted(
                ast.literal_eval(each.value) for each in node.body if isinstance(each, ast.Assign)
            )
            for node in ast.walk(enums)
            if isinstance(node, ast.ClassDef)
        }

    def properties(self, name: str, above: frozenset[str] = frozenset()) -> dict[str, Any]:
        found: dict[str, Any] = {}
        node = self.classes[name]
        for base in node.bases:
            parent = ast.unparse(base).rpartition(".")[2]
            if parent in self.classes:
                found |= self.properties(parent, above)
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.value, ast.Call):
                names = [word.value for word in line.value.keywords if word.arg == "name"]
                key = ast.literal_eval(names[0]) if names else ast.unparse(line.target)
                found[key] = self._shape(ast.unparse(line.annotation), above | {name})
        return dict(sorted(found.items()))

    def _shape(self, annotation: str, above: frozenset[str]) -> Any:
        text = annotation.replace('"', "").replace("'", "")
        if re.search(r"\b[dD]ict\[", text):
            return {"*": None}
        if listed := re.search(r"\b[lL]ist\[(.*)\]", text):
            return {"[]": self._shape(listed[1], above)}
        names = re.findall(r"models\.(\w+)", text)
        for name in names:
            if name in self.words:
                return self.words[name]
        for name in names:
            if name in self.classes and name not in above:
                return self.properties(name, above)
        plain = re.search(r"\b(str|bool|int|float)\b", text)
        return plain[1] if plain else None


def pruned(shape: Any, used: set[str]) -> Any:
    """Leave out what is inside of properties that infra/ does not use."""
    if not isinstance(shape, dict):
        return shape
    return {
        key: pruned(inner, used) if key in {*used, "[]", "*"} or not isinstance(inner, dict) else "object"
        for key, inner in shape.items()
    }


def main(packages: Path) -> None:
    """Write the shapes, and which packages they come from."""
    versions = {each.name: each.version for each in distributions(path=[str(packages)])}
    text = "".join(path.read_text(encoding="utf-8") for path in INFRA.rglob("*.bicep"))
    used = set(re.findall(r"(\w+):", text))
    shapes = dict(OLDER)
    for kind, (package, name) in MODELS.items():
        folder = packages / "azure" / "mgmt" / package / "models"
        shapes[kind] = pruned(Package(folder).properties(name), used)
    sources = sorted({f"azure-mgmt-{package}" for package, _ in MODELS.values()})
    document = {"sources": {name: versions[name] for name in sources}, "shapes": dict(sorted(shapes.items()))}
    lines = json.dumps(document, separators=(",", ":")).replace('},"Microsoft.', '},\n"Microsoft.')
    TARGET.write_text(f"{lines}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
