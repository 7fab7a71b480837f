"""What is kept of a dependency's answer."""

from typing import Any, Final

from activities.downstream import Answer
from activities.masking import masked
from engine.dependency import Dependency
from engine.json_text import json_problems, read_json
from engine.problem import InvalidInputError

_KEPT_HEADERS: Final = frozenset(
    {
        "content-type",
        "content-length",
        "content-language",
        "etag",
        "last-modified",
        "location",
        "date",
        "x-request-id",
        "request-id",
        "x-ms-request-id",
        "x-correlation-id",
        "traceparent",
    }
)
"""Of a stranger's headers only those that help a person; cookies and tokens are never kept."""

_HEADER_CHARS: Final = 1_024


def kept_result(answer: Answer, dependency: Dependency, limit_bytes: int) -> dict[str, Any]:
    """Return the `result` of a success: `json` when the whole body is JSON and small enough, else `body`.

    A body that was cut, in reading or here, carries `"truncated": true`.
    """
    headers = {
        name: masked(value, dependency)[:_HEADER_CHARS]
        for name, value in answer.headers.items()
        if name in _KEPT_HEADERS
    }
    result: dict[str, Any] = {"status_code": answer.status_code, "headers": headers}
    if not answer.body:
        return result
    text = masked(answer.body[:limit_bytes].decode("utf-8", errors="replace"), dependency)
    if answer.is_cut or len(answer.body) > limit_bytes:
        return result | {"body": text, "truncated": True}
    if _calls_itself_json(answer):
        try:
            document = read_json(text)
        except InvalidInputError:
            return result | {"body": text}
        if not json_problems(document):
            return result | {"json": document}
    return result | {"body": text}


def error_text(answer: Answer, dependency: Dependency) -> str:
    """Return the beginning of a refusal's body as one line, for a person; "" when there is none."""
    text = " ".join(answer.body[:1_024].decode("utf-8", errors="replace").split())
    return masked(text, dependency)[:200]


def _calls_itself_json(answer: Answer) -> bool:
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type.endswith(("/json", "+json"))
