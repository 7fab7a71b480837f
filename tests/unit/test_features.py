"""The core does without any feature: with one refused it starts, and lacks that one's functions alone."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Final

import pytest

from durable_retry.plugins import Plugin, plugins
from durable_retry.runtime.deferred import imported
from scripts.processes import ROOT

FEATURES: Final = {plugin.name: plugin for plugin in plugins() if plugin.name}

WITHOUT: Final = """
import json, pkgutil, sys
from importlib import import_module

refused = f"durable_retry.features.{sys.argv[1]}"

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name == refused or name.startswith(refused + "."):
            raise ModuleNotFoundError(f"{name} is taken out")

if sys.argv[1]:
    sys.meta_path.insert(0, Refusing())
    iter_modules = pkgutil.iter_modules
    pkgutil.iter_modules = lambda *given: (each for each in iter_modules(*given) if each.name != refused)

from importlib import metadata
metadata.entry_points = lambda **_: ()

import azure.durable_functions as df
import durable_retry
from durable_retry.base.validation import InvalidInputError
from durable_retry.rules.operations.request import parse_operation

app = df.DFApp()
durable_retry.register(app)
for module in pkgutil.walk_packages(durable_retry.__path__, "durable_retry."):
    if not module.name.startswith("durable_retry.features."):
        import_module(module.name)
try:
    parse_operation(dict.fromkeys(sys.argv[2:]))
except InvalidInputError as error:
    problems = {problem.pointer: problem.detail for problem in error.problems}
print(json.dumps([[function.get_function_name() for function in app.get_functions()], problems]))
"""


def app_without(feature: str, members: Iterable[str] = ()) -> tuple[set[str], dict[str, str]]:
    """Return the functions of an app without a feature, and what is wrong with a body of some members."""
    command = [sys.executable, "-c", WITHOUT, feature, *members]
    environment = os.environ | {"FLAKY_TARGET_URL": "http://127.0.0.1:9"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    names, problems = json.loads(done.stdout)
    return set(names), problems


def functions_of(plugin: Plugin) -> set[str]:
    """Return the names of the functions that a feature adds."""
    durable = {name for each in plugin.activities for name in each.names}
    durable |= {each.name for each in plugin.orchestrations} | set(plugin.entities)
    sources = imported(plugin.sources).values() if plugin.sources else ()
    triggered = {
        name
        for blueprint in filter(None, (source.blueprint() for source in sources))
        for builder in blueprint._function_builders
        if not (name := builder._function.get_function_name() or "").startswith("BuiltIn__")
    }
    return durable | triggered | {each.function for each in plugin.collections}


def members_of(plugin: Plugin) -> set[str]:
    """Return the names of the members that a feature adds to the body of an operation."""
    return set(imported(plugin.members).model.model_fields) if plugin.members else set()


@pytest.fixture(scope="module")
def whole() -> set[str]:
    """The functions of an app with all features."""
    return app_without("")[0]


@pytest.mark.parametrize("feature", FEATURES)
def test_an_app_without_a_feature_lacks_its_functions_and_members_alone(
    feature: str, whole: set[str]
) -> None:
    members = {name: members_of(plugin) for name, plugin in FEATURES.items()}
    left, problems = app_without(feature, set().union(*members.values()))
    assert whole - left == functions_of(FEATURES[feature])
    unknown = {name for name, detail in problems.items() if detail.startswith("is not a known key")}
    assert unknown == {f"/{member}" for member in members[feature]}
