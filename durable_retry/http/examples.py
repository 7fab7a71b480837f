"""Examples of what is sent and answered, made from the schemas of the classes.

A class has an example of its own where its types do not make one (`engine.base.validation.with_example`). All
others come from here: a member's name says what stands there, since a name means one thing in the whole API.
"""

from collections.abc import Mapping
from typing import Any, Final

# What stands in a member of this name, where its type allows that.
_WORDS: Final[Mapping[str, Any]] = {
    "action_id": "bulk-0b8f6a52d3c94e0f8a4f3f3c3a7b9d10",
    "attempt_count": 2,
    "base_url": "https://payments.example.com/v1",
    "batch_id": "batch-5b0c1f9e7d2a4c68",
    "by": "ada",
    "caller": "ada",
    "changed_by": "ada",
    "condition": "dead_letters",
    "correlation_id": "order-42",
    "dead_letter_id": "dl-67cf35ae047bea4efe7accb99a531cd6",
    "delay_reasons": ["exponential 2 s", "full jitter"],
    "dependency": "payments",
    "detail": "status 503 after 5 attempts",
    "diagnosis_id": "diagnosis-1",
    "duration_ms": 41.2,
    "failure_ratio": 0.5,
    "fingerprint": ["/json/order"],
    "event_id": "op-6f1f0d2f0b7c4a1f.1",
    "group": "g-d390a7bd9ffd11fb",
    "handler": "ship-order",
    "header": "Idempotency-Key",
    "headers": {"content-type": "application/json"},
    "host": "hooks.example.com",
    "id": "dl-67cf35ae047bea4efe7accb99a531cd6",
    "input": {"number": 7},
    "json": {"id": "ch_1"},
    "key": "evt-1",
    "message": '{"amount": 5',
    "name": "charge",
    "note": "The address was wrong.",
    "operation_id": "op-6f1f0d2f0b7c4a1f",
    "path": "/charges",
    "pointer": "/retry/max_attempts",
    "pointers": ["/request/json/card"],
    "queue": "charge-events",
    "reason": "The supplier has an outage.",
    "receiver": "on-call",
    "replay_id": "replay-77777777777777777777777777777777",
    "request": {"method": "POST", "path": "/charges", "query": {}, "headers": {}, "json": {"amount": 5}},
    "result": {"status_code": 200, "headers": {}, "json": {"id": "ch_1"}},
    "saga_id": "saga-5b0c1f9e7d2a4c68",
    "secrets": [],
    "slow_call_ratio": 0.9,
    "source": "http",
    "status": "succeeded",
    "status_code": 503,
    "status_url": "https://app.example.com/api/operations/op-6f1f0d2f0b7c4a1f",
    "text": "The supplier was told.",
    "title": "Open dead letters",
    "type": "charge.completed",
}

# Names in objects that have a member for each of something; of a dependency where the member is not here.
_NAMES: Final = {
    "by_priority": "high",
    "by_reason": "RetriesExhausted",
    "classify": "404",
    "ended_by_status": "succeeded",
    "failures_by_category": "transient",
    "thresholds": "dead_letters",
    "unavailable": "health",
    "waiting_by_priority": "high",
    "waits": "retry",
}

# Members that are null as a rule.
_NULL: Final = frozenset(
    {
        *("archived_at", "archived_by", "auth", "dead_letter", "error", "expires_at", "failed_again"),
        *("finished_at", "next_attempt_at", "next_cursor", "quota", "replay_of", "resolved_at"),
        *("silence", "throttled_until", "tripped_by", "waiting_until"),
    }
)

_INSTANT: Final = "2026-11-21T09:30:00Z"
_OF_TYPE: Final[Mapping[Any, Any]] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}
_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


class Examples:
    """The examples of the schemas of one OpenAPI document, by name."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas

    def of(self, name: str) -> Any:
        """Return the example of a schema."""
        return self._example(self._schemas[name], "")

    def _example(self, schema: Mapping[str, Any], name: str) -> Any:
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        if "examples" in schema:
            return schema["examples"][0]
        if "anyOf" in schema:
            options = [each for each in schema["anyOf"] if each.get("type") != "null"]
            is_null = name in _NULL and len(options) < len(schema["anyOf"])
            return None if is_null else self._example(options[0], name)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return _WORDS[name] if _WORDS.get(name) in schema["enum"] else schema["enum"][0]
        return self._example_of_type(schema, name)

    def _example_of_type(self, schema: Mapping[str, Any], name: str) -> Any:
        type_ = schema.get("type")
        word = _WORDS.get(name)
        if word is not None and type_ in {None, _TYPES[type(word)]} and not schema.get("properties"):
            return word
        if type_ == "object":
            return self._example_object(schema, name)
        if type_ == "array":
            return [self._example(schema.get("items", {}), name)]
        if schema.get("format") == "date-time":
            return _INSTANT
        value = _OF_TYPE.get(type_)
        return max(value, schema["minimum"]) if "minimum" in schema else value

    def _example_object(self, schema: Mapping[str, Any], name: str) -> dict[str, Any]:
        if "properties" not in schema:
            values = schema.get("additionalProperties")
            return (
                {_NAMES.get(name, "payments"): self._example(values, name)}
                if isinstance(values, dict)
                else {}
            )
        return {
            member: self._example(each, member)
            for member, each in schema["properties"].items()
            if member in schema.get("required", ()) or member == "request"
        }
