"""What tags, path parameters and members mean where no class says it: a name means one thing in the API.

Examples of what is sent and answered are made from the schemas of the classes and from the members' names. A
class that this does not suit has an example of its own (`base.validation.with_example`).
"""

from collections.abc import Mapping
from typing import Any, Final

TAGS: Final[Mapping[str, str]] = {
    "operations": "Units of work: submit, watch and steer them.",
    "batches": "Up to 1,000 operations at once, independent of one another.",
    "sagas": "Operations in order; when one fails, those before it are compensated in reverse.",
    "dependencies": "The services that operations call, and what a retry policy would do.",
    "order lanes": "The operations of an order key run one after the other: who is in front, who waits.",
    "circuits": "The breaker of each dependency, which all instances share: watch it, or move it by hand.",
    "dead letters": "What will not succeed without a person: find, note, correct, replay or archive it.",
    "outbox": "Events that are sent after success, in order.",
    "the app": "Health, self-diagnosis, and this description.",
    "metrics": "Attempts, failures and durations of each dependency over time.",
    "search": "One question to operations, dead letters, events, batches, sagas and bulk actions.",
    "bulk actions": "The same action on many operations or dead letters, at a rate.",
    "alerts": "Conditions above their thresholds, and who was sent a message.",
    "activity": "What people did, outages, and other code or settings than before.",
}

PATH_PARAMETERS: Final[Mapping[str, str]] = {
    "operation_id": "Id of an operation, as its submission was answered.",
    "batch_id": "Id of a batch, as its submission was answered.",
    "saga_id": "Id of a saga, as its submission was answered.",
    "dependency": "Name of a dependency in `dependencies.toml`.",
    "order_key": "Order key of operations, as they were submitted.",
    "dead_letter_id": "Id of a dead letter, from a list or from `dead_letter` of an operation.",
    "group": "Name of a root cause: `group` of a dead letter.",
    "event_id": "Id of an event, from `events` of an operation or the list of the outbox.",
    "diagnosis_id": "Id of a diagnosis, as its start was answered.",
    "action_id": "Id of a bulk action, as its start was answered.",
    "path": "Name of a file of the dashboard.",
}

MEMBERS: Final[Mapping[str, str]] = {
    "about": "Whether it tells of the raise or of the clear.",
    "acknowledged_at": "When somebody began to look into it; null while nobody did.",
    "acknowledged_by": "Who looks into it; null where it is not known.",
    "action": "What was done.",
    "action_id": "Id of the bulk action.",
    "after": "The value in the replayed request.",
    "alerts": "The alerts that are raised now.",
    "archived_at": "When it was archived; null while it is not.",
    "archived_by": "Who archived it; null while nobody did.",
    "at": "When it was written.",
    "attempt_count": "Attempts so far.",
    "attempt_ms": "How long attempts took, in milliseconds.",
    "attempts": "The latest attempts, the oldest first.",
    "attempts_at_most_seconds": "What the attempts take besides, when each uses its whole time limit.",
    "audit": "Changes by hand, the newest first.",
    "batch_id": "Id of the batch.",
    "before": "The value in the request that failed.",
    "bucket_seconds": "The width of a bucket.",
    "buckets": "Counts per span of time, the oldest first.",
    "by": "Who did it; null where the caller gave no name.",
    "by_dependency": "The same by dependency.",
    "by_reason": "The same by reason.",
    "by_status": "The same by status.",
    "calls": "Calls in the window.",
    "cancelled": "How many were cancelled.",
    "category": "The kind of the failure.",
    "changed_by": "Who changed the circuit last; null when the app did.",
    "changes": "What the replay changed in the request.",
    "circuits": "The circuits, the worst first.",
    "cleared_at": "When the condition ended; null while it holds.",
    "compensation": "The operation that undoes the step; null when there is none.",
    "condition": "What the alert is about.",
    "correlation_id": "The caller's own reference, sent to the dependency and written in logs.",
    "count": "How many there are.",
    "counted_at": "When it was counted.",
    "counts": "How many items have which status.",
    "created_after": "Only those created at this instant or later.",
    "created_at": "When it was created.",
    "created_before": "Only those created before this instant.",
    "debounce_key": "A later operation with it replaces this one while it waits; null without one.",
    "limit_key": "Whose share of the limits of its dependency it uses; null without one.",
    "dead_letter": "Its dead letter; null when it has none.",
    "dead_letter_id": "Id of its dead letter; null when it has none.",
    "dead_lettered": "How many became dead letters.",
    "dead_letters": "The open dead letters.",
    "deadline_at": "When it is given up, waits included; null without a deadline.",
    "deliveries": "Whom it was sent to, and how that went.",
    "dependencies": "The same for each dependency.",
    "dependency": "Name of the dependency.",
    "detail": "What is wrong, for a person.",
    "diagnosis_id": "Id of the diagnosis.",
    "duration_ms": "How long it took, in milliseconds.",
    "effect": "Whether what the step did stands, was undone, or is not known.",
    "ended_by_status": "How many operations ended, by status.",
    "epoch": "Counts the changes of the circuit.",
    "error": "The last error, for a person; null when there is none.",
    "event_id": "Id of the event: the same however often it is sent.",
    "events": "The follow-up messages, in the order of sending.",
    "expected_seconds": "On average.",
    "expires_at": "When a change by hand ends; null when it has no end.",
    "factor": "Each wait is this many times the one before it.",
    "failed": "How many failed.",
    "failed_again": "How many ended badly once more; null until that is known.",
    "failures": "Failed calls.",
    "failures_by_category": "Failed attempts by the kind of failure.",
    "filter": "Which dead letters.",
    "finished_at": "When it ended; null while it runs.",
    "first_failed_at": "When it failed first.",
    "for_seconds": "How long it holds; null until somebody changes it.",
    "from": "The beginning of the span.",
    "group": "Stable for the same root cause.",
    "groups": "The causes with the most dead letters.",
    "handler": "Name of the handler; null when it is a request.",
    "header": "Name of the header.",
    "health": "The health of the app.",
    "healthy": "Whether the part works.",
    "host": "The host that it is sent to, without path.",
    "id": "Its id.",
    "resolved_by": "Who said that it is mended; null where it is not known.",
    "index": "Its place, counted from 0.",
    "hold_seconds": "How long what its policy holds is paused before it is a dead letter.",
    "initial_seconds": "The wait before the first retry.",
    "items": "The items of this page.",
    "jitter": "How the waits are spread.",
    "key": "The caller's name for it; the same key is the same work.",
    "kind": "The kind of the entry.",
    "latest_failed": "The newest events that could not be sent.",
    "least_seconds": "At least.",
    "limits": "The limits of the dependency, and how far they are used.",
    "matched": "How many fit.",
    "max_attempts": "Attempts, the first included; -1 means until the deadline.",
    "max_concurrency": "The most at once.",
    "max_retry_after_seconds": "The longest `Retry-After` that is waited for.",
    "max_seconds": "The longest wait.",
    "message": "The text of the message; null when it is an operation.",
    "metrics": "Attempts and their durations of late.",
    "most_seconds": "At most.",
    "name": "Its name.",
    "next_attempt_at": "When it goes on; null when it does not wait.",
    "next_cursor": "The `cursor` of the next page; null at the end.",
    "note": "What a person wrote about it.",
    "notes": "What people wrote about it, the oldest first.",
    "oldest_age_seconds": "The age of the oldest; null when there is none.",
    "oldest_at": "When the oldest was created; null when there is none.",
    "on_exhausted": "What becomes of an operation without attempts or time left.",
    "open": "How many are open.",
    "operation_id": "Id of the operation.",
    "operations": "How many operations.",
    "order_key": "Operations with it run one after the other; null without one.",
    "p50": "Half of them took at most this long.",
    "p95": "95 of 100 took at most this long.",
    "parts": "Each part that was looked at.",
    "path": "Below the dependency's base URL; null for a queue.",
    "pending": "How many have not begun.",
    "pending_since": "Since when it waits to be sent.",
    "pointer": "JSON pointer (RFC 6901) to the place.",
    "points": "The figures of each span, the oldest first.",
    "priority": "Who goes first where operations wait; null for what is no operation.",
    "queue": "Name of the storage queue; null for a webhook.",
    "raised_at": "When it was raised.",
    "rate_per_second": "The most per second, on average.",
    "reason": "Why, in a word or a sentence.",
    "receiver": "Name of the receiver.",
    "receivers": "Who is told.",
    "replay_of": "Id of the dead letter whose replay this is; null when it is of none.",
    "replays": "Its replays, the oldest first.",
    "requested_at": "When it was asked for.",
    "respect_retry_after": "Whether the dependency's `Retry-After` is waited for.",
    "retry_at": "When the next probe is let through; null while the circuit is not open.",
    "running": "How many are being carried out.",
    "saga_id": "Id of the saga.",
    "sample": "One of them.",
    "schedule_seconds": "The waits one by one, for the strategy `schedule`.",
    "seconds": "How long, in seconds.",
    "sent_at": "When it was sent; null while it is not.",
    "skipped": "How many needed nothing.",
    "slow_calls": "Calls that took too long.",
    "source": "The way in: `http`, `queue`, `batch`, ...",
    "stands": "Names of the steps whose effect stands.",
    "state": "Where it stands.",
    "status": "Where it stands.",
    "status_url": "Where its status document is.",
    "step_seconds": "The width of a point.",
    "steps": "The steps, in their order.",
    "strategy": "How the waits grow.",
    "succeeded": "How many succeeded.",
    "target": "What it was done to.",
    "text": "What it says, for a person.",
    "threshold": "The value above which it is raised.",
    "throttled_until": "Until when the dependency asked for a pause; null when it did not.",
    "title": "What it is, in a few words.",
    "to": "The end of the span.",
    "tolerated_failures": "How many may fail before the others are not started.",
    "total": "All of it.",
    "tries": "How often it was tried.",
    "type": "What it is.",
    "under_way": "How many have not ended.",
    "undone": "Names of the steps that were compensated.",
    "unfinished": "Operations that have not ended.",
    "unknown": "Names of the steps whose effect is not known.",
    "unreadable": "Why what is stored cannot be read; left out when it can.",
    "updated_at": "When it changed last.",
    "value": "The value itself.",
    "waiting": "How many wait for the circuit.",
    "waits": "How long it waited for what.",
    "window": "The calls that the circuit counts.",
}

MEMBERS_OF: Final[Mapping[tuple[str, str], str]] = {
    ("Auth", "value"): "A placeholder: the value is never shown.",
    ("BulkActionDocument", "failures"): "The first failures, each with its id.",
    ("OperationShare", "attempts"): "How many attempts.",
    ("OperationSummary", "attempts"): "How many attempts.",
    ("OverviewDocument", "operations"): "Operations by status, over time.",
    ("ProblemDocument", "detail"): "What is wrong with this request, as a sentence.",
    ("ProblemDocument", "status"): "The status of the answer.",
    ("ProblemDocument", "type"): "The kind of the problem, a URI reference.",
}


def with_members_described(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema in which every member has a description, and the page of a list one of its own."""
    described = {"description": "A page of a list."} if name.endswith("Page") else {}
    members = {
        member: {"description": text, **shape}
        if (text := MEMBERS_OF.get((name, member), MEMBERS.get(member)))
        else shape
        for member, shape in schema.get("properties", {}).items()
    }
    return {**described, **schema, **({"properties": members} if members else {})}


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
    "waiting_by_key": "customer-17",
    "waiting_by_priority": "high",
    "waits": "retry",
}

# Members that are null as a rule.
_NULL: Final = frozenset(
    {
        *(
            "archived_at",
            "archived_by",
            "auth",
            "cleared_at",
            "dead_letter",
            "error",
            "expires_at",
        ),
        *("finished_at", "next_attempt_at", "next_cursor", "replay_of", "resolved_at"),
        *("failed_again", "throttled_until", "tripped_by", "waiting_until"),
    }
)

_INSTANT: Final = "2026-11-21T09:30:00Z"
_TYPE_EXAMPLES: Final[Mapping[Any, Any]] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}
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
            options = [option for option in schema["anyOf"] if option.get("type") != "null"]
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
        value = _TYPE_EXAMPLES.get(type_)
        return max(value, schema["minimum"]) if "minimum" in schema else value

    def _example_object(self, schema: Mapping[str, Any], name: str) -> dict[str, Any]:
        if "properties" not in schema:
            values, key = schema.get("additionalProperties"), _NAMES.get(name, "payments")
            if "propertyNames" in schema:
                key = self._example(schema["propertyNames"], name)
            return {key: self._example(values, name)} if isinstance(values, dict) else {}
        return {
            member: self._example(shape, member)
            for member, shape in schema["properties"].items()
            if member in schema.get("required", ()) or member == "request"
        }
