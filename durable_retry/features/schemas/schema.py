"""The JSON Schemas that dependencies name: read once in a process, checked at the start, and applied.

The package `jsonschema` is imported only where a dependency names a schema.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

from durable_retry.base.text import cut_text
from durable_retry.base.validation import Problem, pointer_of
from durable_retry.features.schemas.members import SCHEMAS, SchemaKeys
from durable_retry.rules.config.dependency import Dependency
from durable_retry.settings.configuration import APP_ROOT

_VALUE_CHARS: Final = 200
_NO_PACKAGE: Final = "needs the package jsonschema: install durable-retry[schemas]"


class UnusableSchemaError(ValueError):
    """A file cannot be used as a schema; the text says why."""


@cache
def validator_of(file: str) -> Any:
    """Return the validator of documents by the schema in a file, which is named from the app's folder.

    Raises:
        UnusableSchemaError: It cannot be read, is no JSON Schema, or refers to what is outside of it.
    """
    try:
        jsonschema, referencing = import_module("jsonschema"), import_module("referencing")
    except ImportError:
        raise UnusableSchemaError(_NO_PACKAGE) from None
    try:
        schema = json.loads((APP_ROOT / file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UnusableSchemaError(f"cannot read {file} in the app's folder: {error.strerror}") from None
    except ValueError as error:
        raise UnusableSchemaError(f"{file} is not JSON: {error}") from None
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        place = pointer_of(*error.absolute_path)
        raise UnusableSchemaError(f"{file} is no JSON Schema: {place or '/'}: {error.message}") from None
    # Without a registry of its own a validator would fetch what a reference names.
    registry = referencing.Registry()
    specification = referencing.jsonschema.specification_with(kind.META_SCHEMA["$schema"])
    root = specification.create_resource(schema)
    for reference in _unresolved(
        root, registry.resolver_with_root(root), referencing.exceptions.Unresolvable
    ):
        raise UnusableSchemaError(f"{file} refers to {reference}, which it does not have")
    return kind(schema, registry=registry)


def _unresolved(resource: Any, resolver: Any, unresolvable: type[Exception]) -> Iterator[str]:
    reference = resource.contents.get("$ref") if isinstance(resource.contents, dict) else None
    if reference is not None:
        try:
            resolver.lookup(reference)
        except unresolvable:
            yield reference
    for inner in resource.subresources():
        yield from _unresolved(inner, resolver.in_subresource(inner), unresolvable)


def problems_of_schemas(dependency: Dependency) -> Iterator[Problem]:
    """List what is wrong with the schemas that a dependency names."""
    for file in dependency.keys_of(SCHEMAS, SchemaKeys).all_files:
        try:
            validator_of(file)
        except UnusableSchemaError as error:
            yield Problem("/schema", str(error))


def problems_in(file: str, document: Any) -> Iterator[Problem]:
    """List where a document does not fit a schema; no problem cites a value of it, which may be secret."""
    for error in validator_of(file).iter_errors(document):
        place = pointer_of(*error.absolute_path)
        yield from (Problem(f"{place}{below}", detail) for below, detail in _details_of(error))


def _details_of(error: Any) -> Iterator[tuple[str, str]]:
    keyword, wanted = error.validator, error.validator_value
    match keyword:
        case "required":
            # There is an error for each that is missing, and its message names it.
            missing = (name for name in wanted if error.message.startswith(f"{name!r} "))
            yield from ((pointer_of(name), "is required") for name in missing)
        case "additionalProperties" if wanted is False:
            unknown = (name for name in error.instance if not _is_known(name, error.schema))
            yield from ((pointer_of(name), "is not a known key") for name in unknown)
        case "type":
            names = [wanted] if isinstance(wanted, str) else wanted
            yield "", f"must be {' or '.join(names)}"
        case _:
            yield "", f"does not meet {keyword}: {cut_text(json.dumps(wanted), _VALUE_CHARS)}"


def _is_known(name: str, schema: Mapping[str, Any]) -> bool:
    patterns = schema.get("patternProperties", {})
    return name in schema.get("properties", {}) or any(re.search(pattern, name) for pattern in patterns)
