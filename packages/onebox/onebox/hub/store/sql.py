"""Reads the named statements of `queries.sql`."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

_HERE: Final = Path(__file__).parent
_NAMED = re.compile(r"^-- name: (?P<name>[a-z_.]+)\n(?:--[^\n]*\n)+(?P<sql>.*?);$", re.MULTILINE | re.DOTALL)


def _read_statements() -> Mapping[str, str]:
    text = (_HERE / "queries.sql").read_text(encoding="utf-8")
    return MappingProxyType({found["name"]: found["sql"] for found in _NAMED.finditer(text)})


SCHEMA: Final = (_HERE.parent / "schema.sql").read_text(encoding="utf-8")
FROM_FORM_1: Final = (_HERE / "from_form_1.sql").read_text(encoding="utf-8").replace("-- schema\n", SCHEMA)
QUERIES: Final = _read_statements()
