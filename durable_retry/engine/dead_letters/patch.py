"""A JSON patch (RFC 6902): one change that is made to many dead letters, each with a content of its own."""

import json
from collections.abc import Iterable
from copy import deepcopy
from typing import Annotated, Any, Final, Literal, Self

from jsonpatch import (
    JsonPatch,
    JsonPatchException,
    JsonPatchPathNotFound,
    JsonPatchTestFailed,
    JsonPointerException,
)
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from durable_retry.engine.base.json_input import json_problems, json_size
from durable_retry.engine.base.validation import (
    InvalidInputError,
    Problem,
    Strict,
    checked,
    pointer_problem,
    refuse,
)

EDITABLE: Final = frozenset({"request", "input", "message"})
"""What a patch may begin with: the part of a dead letter that a person may edit."""

_MAX_STEPS: Final = 50
_MAX_POINTER_CHARS: Final = 1_000


def _place_problem(pointer: str) -> str | None:
    if pointer_problem(pointer) is None and pointer.partition("/")[2].partition("/")[0] not in EDITABLE:
        return f"must begin with /{', /'.join(sorted(EDITABLE))}"
    return pointer_problem(pointer)


type _Place = Annotated[str, Field(max_length=_MAX_POINTER_CHARS), checked(_place_problem)]


class PatchStep(Strict):
    """One step of a JSON patch.

    Attributes:
        op: What is done at the path; `test` refuses the dead letters that have another value there.
        path: JSON pointer into the dead letter as it is shown, such as `/request/json/amount`; that of a
            message which is JSON leads into it.
        value: Of `add`, `replace` and `test`.
        source: Of `move` and `copy`, written `from`: where the value comes from.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: _Place
    value: Any = None
    source: Annotated[_Place | None, Field(alias="from")] = None

    @model_validator(mode="after")
    def _has_its_members(self) -> Self:
        takes_value, takes_source = self.op in {"add", "replace", "test"}, self.op in {"move", "copy"}
        if takes_value is not ("value" in self.model_fields_set):
            raise refuse(f"{self.op} {'needs a' if takes_value else 'takes no'} value")
        if takes_source is not (self.source is not None):
            raise refuse(f"{self.op} {'needs a' if takes_source else 'takes no'} from")
        return self


def _checked_values(steps: list[PatchStep]) -> list[PatchStep]:
    for problem in json_problems([step.value for step in steps]):
        raise refuse(f"{problem.pointer} {problem.detail}")
    return steps


type Patch = Annotated[
    list[PatchStep], Field(min_length=1, max_length=_MAX_STEPS), AfterValidator(_checked_values)
]


def patched(content: Any, steps: Iterable[PatchStep], *, most_bytes: int) -> Any:
    """Return a document as a patch changes it.

    Args:
        most_bytes: The largest document, as JSON; one that is larger already must not grow.

    Raises:
        InvalidInputError: The patch does not fit the document, or makes it too large or too deep; the pointer
            is the place in the document.
    """
    if problems := json_problems(content):  # a message may be of any depth, and copying it goes by recursion
        raise _misfit("", f"the document {problems[0].detail}")
    document = deepcopy(content)
    most_bytes = max(most_bytes, json_size(content))
    for step in steps:
        _change(document, step)
        if step.op not in {"test", "remove"}:
            _refuse_growth(document, step, most_bytes)
    return document


def _refuse_growth(document: Any, step: PatchStep, most_bytes: int) -> None:
    # After each step: a copy of the document into itself doubles it, so fifty of them would never end.
    if problems := json_problems(document):
        raise _misfit(step.path, f"after this step the document {problems[0].detail}")
    if json_size(document) > most_bytes:
        raise _misfit(step.path, f"after this step the document is larger than {most_bytes} bytes")


def _change(document: Any, step: PatchStep) -> None:
    operation = step.model_dump(by_alias=True, exclude_unset=True)
    try:
        JsonPatch([operation]).apply(document, in_place=True)
    except JsonPatchTestFailed:
        raise _misfit(step.path, f"is not {json.dumps(step.value, sort_keys=True):.100}") from None
    except JsonPatchPathNotFound:
        raise _misfit(step.source or step.path, "is not there") from None
    except (JsonPatchException, JsonPointerException):
        # `from None`, and no words of the error: they show parts of the document.
        raise _misfit(step.path, "is no place in the document") from None


def _misfit(pointer: str, detail: str) -> InvalidInputError:
    return InvalidInputError([Problem(pointer, detail)])
