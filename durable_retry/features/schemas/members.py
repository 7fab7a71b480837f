"""The keys that a dependency has of schemas, and the check of each request."""

from collections.abc import Iterator
from typing import Annotated, Final
from urllib.parse import unquote

from pydantic import ConfigDict, Discriminator, Field, Tag

from durable_retry.base.validation import TAGS, Problem, Strict
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.request import Members, OperationRequest
from durable_retry.runtime.deferred import imported

SCHEMAS: Final = "schemas"
"""The feature."""

_ONE_SEGMENT: Final = "*"


class SchemaKeys(Strict):
    """The keys that a dependency has of it.

    Attributes:
        schema: File of a JSON Schema that `request.json` must fit, from the app's folder; or a table of such
            files by the request's path, in which a segment `*` stands for any. "" for none.
    """

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    # Pydantic's models have an attribute `schema`.
    files: Annotated[
        Annotated[str, Tag(TAGS[0])] | Annotated[dict[str, str], Tag(TAGS[1])],
        Discriminator(lambda files: TAGS[isinstance(files, dict)]),
    ] = Field(default="", alias="schema")

    def file_for(self, path: str) -> str | None:
        """Return the file that a request to a path must fit; None for none."""
        if isinstance(self.files, str):
            return self.files or None
        return next((file for pattern, file in self.files.items() if _fits(pattern, path)), None)

    @property
    def all_files(self) -> list[str]:
        """Each file once."""
        files = [self.files] if isinstance(self.files, str) else self.files.values()
        return list(dict.fromkeys(filter(None, files)))


def _fits(pattern: str, path: str) -> bool:
    patterns, segments = (unquote(text).strip("/").split("/") for text in (pattern, path))
    return len(patterns) == len(segments) and all(
        part in (_ONE_SEGMENT, segment) for part, segment in zip(patterns, segments, strict=True)
    )


class _Schemas(Members):
    def misfits(self, request: OperationRequest, dependency: Dependency) -> Iterator[Problem]:
        call = request.request
        file = None if call is None else dependency.keys_of(SCHEMAS, SchemaKeys).file_for(call.path)
        if call is None or file is None:
            return
        if call.body is not None:
            yield Problem("/request/body", f"is text: {dependency.name} takes json that fits {file}")
        if call.has_json:
            problems = imported("durable_retry.features.schemas.schema:problems_in")(file, call.body_json)
            yield from (problem.below("/request/json") for problem in problems)


MEMBERS: Final = _Schemas()
