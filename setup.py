"""What pyproject.toml cannot say of the wheel: docs/decisions/layer-and-feature.md.

The folders of durable functions are at the top of the repository. In the wheel they are inside the package,
so that it takes one top-level name, whatever folders an app has of its own.
"""

from typing import Any, Final

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PACKAGE: Final = "durable_retry"
FOLDERS: Final = {f"{PACKAGE}.{folder}": folder for folder in ("orchestrators", "activities", "entities")}
OF_THIS_APP: Final = (f"{PACKAGE}.activities", "handlers")
"""Handlers of the repository's own app: they name a dependency that others do not have."""


class Build(build_py):  # type: ignore[misc] # setuptools has no types
    """Leaves out the handlers of this repository's app."""

    def find_package_modules(self, package: str, package_dir: str) -> list[Any]:
        """Return the modules of a package: its name, theirs, and the file of each."""
        found = super().find_package_modules(package, package_dir)
        return [module for module in found if module[:2] != OF_THIS_APP]


setup(
    packages=[*find_packages(include=[PACKAGE, f"{PACKAGE}.*"]), *FOLDERS],
    package_dir=FOLDERS,
    package_data={PACKAGE: ["py.typed", "features/names.json", "features/openapi/documents/*.json"]},
    cmdclass={"build_py": Build},
)
