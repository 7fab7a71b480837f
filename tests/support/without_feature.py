"""What an app without features has and refuses; for a process that has not loaded the product yet."""

import os
import pkgutil
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any


class Refusing:
    """Takes features out of what can be imported."""

    def __init__(self, features: Iterable[str]) -> None:
        self.refused = tuple(f"durable_retry.features.{feature}" for feature in features)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if f"{name}.".startswith(tuple(f"{refused}." for refused in self.refused)):
            raise ModuleNotFoundError(f"{name} is taken out")
        return None


def take_out(features: Iterable[str]) -> None:
    """Let this process find no such features, neither by name nor in the folder."""
    refusing, iter_modules = Refusing(features), pkgutil.iter_modules
    sys.meta_path.insert(0, refusing)
    vars(pkgutil)["iter_modules"] = lambda *given: (
        each for each in iter_modules(*given) if each.name not in refusing.refused
    )


def app_without(features: tuple[str, ...], *used: Any) -> Any:
    """Return what `tests.support.whole_app.shown` finds without these features."""
    os.environ["FLAKY_TARGET_URL"] = "http://127.0.0.1:9"
    if features:
        take_out(features)
    return import_module("tests.support.whole_app").shown(*used)
