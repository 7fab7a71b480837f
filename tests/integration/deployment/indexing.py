"""Run by itself in an interpreter that has nothing but a deployment: imports it all, prints what it found.

usage: indexing.py APP_FOLDER PACKAGES_FOLDER
"""

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

app_folder, packages = Path(sys.argv[1]), sys.argv[2]
# What is imported when it is first needed: `package.module:name`.
REFERENCE = re.compile(r"(?:[a-z_]+\.)+[a-z_]+:\w+")

sys.path[:] = [str(app_folder), packages, *(path for path in sys.path if "site-packages" not in path)]


def imported(file: Path) -> Iterator[str]:
    """The modules that a file names in an import, wherever it stands."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Constant) and REFERENCE.fullmatch(str(node.value)):
            yield str(node.value).partition(":")[0]


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main() -> None:
    """Load the app as the worker does, then look for whatever it imports later."""
    import function_app  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - found in the copy

    loaded = sorted(sys.modules)
    # After what a start loads.
    from durable_retry import routing  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - as above
    from durable_retry.features.openapi import routes as openapi  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - as above

    modules = {module for file in app_folder.rglob("*.py") for module in imported(file)}
    found = {
        "functions": [function.get_function_name() for function in function_app.app.get_functions()],
        "missing": sorted(module for module in modules if not is_there(module)),
        "loaded": loaded,
        "ships_description": (openapi.SHIPPED / openapi.document_name(routing.collections())).is_file(),
    }
    sys.stdout.write(json.dumps(found))


main()
