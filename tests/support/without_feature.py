"""What an app without a feature has and refuses; for a process that has not loaded the product yet."""

import os
import pkgutil
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any


class Refusing:
    """Takes a feature out of what can be imported."""

    def __init__(self, feature: str) -> None:
        self.refused = f"durable_retry.features.{feature}"

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name == self.refused or name.startswith(f"{self.refused}."):
            raise ModuleNotFoundError(f"{name} is taken out")
        return None


def take_out(feature: str) -> None:
    """Let this process find no such feature, neither by name nor in the folder."""
    refusing, iter_modules = Refusing(feature), pkgutil.iter_modules
    sys.meta_path.insert(0, refusing)
    vars(pkgutil)["iter_modules"] = lambda *given: (
        each for each in iter_modules(*given) if each.name != refusing.refused
    )


def app_without(feature: str, *used: Any) -> Any:
    """Return what `tests.support.whole_app.shown` finds without a feature; "" takes out none."""
    os.environ["FLAKY_TARGET_URL"] = "http://127.0.0.1:9"
    if feature:
        take_out(feature)
    return import_module("tests.support.whole_app").shown(*used)
