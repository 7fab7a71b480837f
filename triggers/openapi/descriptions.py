"""Descriptions of properties, out of the docstrings of models: clients read what stands in the code."""

import re
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, Final

_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_OTHER_NAMES: Final = {"body_json": "json"}


def with_described_properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's schema with the `Attributes:` of its description moved to the properties."""
    text, mark, attributes = cleandoc(schema.get("description", "")).partition("\n\nAttributes:\n")
    if not mark:
        return dict(schema)
    told = {name: " ".join(words.split()) for name, words in _ATTRIBUTE.findall(attributes)}
    named = {_OTHER_NAMES.get(name, name): words for name, words in told.items()}
    properties = {
        name: {**described, "description": named[name]} if name in named else described
        for name, described in schema["properties"].items()
    }
    return {**schema, "description": text, "properties": properties}
