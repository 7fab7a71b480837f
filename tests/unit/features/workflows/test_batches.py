import asyncio
import json
import tracemalloc
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from durable_retry.base.documents import MAX_DEPTH, read_checked
from durable_retry.base.names import DeadLetterReason
from durable_retry.base.validation import InvalidInputError, validated
from durable_retry.features.workflows.batch_store import Item
from durable_retry.features.workflows.batches import (
    WorkflowRequest,
    batch_items,
    fingerprint_of_request,
    text_as_read,
)
from durable_retry.features.workflows.rules import references
from durable_retry.features.workflows.rules.references import SagaRequest
from durable_retry.features.workflows.rules.shapes import BatchRequest
from durable_retry.features.workflows.sagas import accept_saga, saga_steps
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake.intake import MAX_DETAIL_CHARS
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import app_settings, using
from tests.support.builders import NOON

CONFIG: Final = parse_config('[dependencies.payments]\nbase_url = "https://payments.example.com"', {})

BATCH: Final = WorkflowRequest("batch-1", "batch")
SAGA: Final = WorkflowRequest("saga-1", "saga")


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    with using(CONFIG):
        yield


def a_call(body: Any, **more: Any) -> dict[str, Any]:
    return {"dependency": "payments", "request": {"path": "/charges", "json": body}, **more}


def as_it_is(document: Any) -> Any:
    return document


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


INVALID: Final = DeadLetterReason.VALIDATION_FAILED


async def items_of(*items: Any) -> list[Item]:
    return await batch_items(BATCH, validated(BatchRequest, {"items": list(items)}), NOON)


async def test_an_item_is_refused_by_itself_as_it_would_be_alone() -> None:
    room = MAX_DEPTH - 2  # the body and its request stand around it
    large = "x" * app_settings().max_body_bytes
    items = await items_of(
        a_call(nested(room)),
        a_call(nested(room + 1), key="k"),
        a_call(large),
        a_call(1) | {"dependency": "no"},
    )
    assert [(item.index, item.key is not None, item.detail, item.reason) for item in items[1:]] == [
        (1, True, f"/request/json{'/0' * room}: nests deeper than 48 levels", INVALID),
        (2, False, "/: is larger than 65536 bytes", INVALID),
        (3, False, "/dependency: no dependency has the name no", DeadLetterReason.UNKNOWN_DEPENDENCY),
    ]
    assert items[0].operation is not None
    assert json.loads(items[2].text) == a_call(large)


@pytest.mark.parametrize("unfit", ["1e999", "1" * 301, '"\\ud800"', "0.1000000000000000055"])
async def test_a_value_that_cannot_be_passed_on_makes_one_item_unfit_or_a_whole_saga(unfit: str) -> None:
    call = json.dumps(a_call(["?"])).replace('"?"', unfit)
    batch = read_checked(f'{{"items": [{call}, {json.dumps(a_call(1))}]}}', as_it_is, has_parts=True)
    assert len(fingerprint_of_request("batch", batch)) == 64
    wrong, right = await items_of(*batch["items"])
    assert wrong.detail.startswith("/request/json/0: ")
    assert wrong.text == call
    assert right.operation is not None
    step = f'{{"name": "a", "operation": {call}, "compensation": {call}}}'
    saga = read_checked(f'{{"steps": [{step}]}}', as_it_is, has_parts=True)
    refusal = await refusal_of(validated(SagaRequest, saga))
    assert [problem.pointer for problem in refusal.problems] == [
        f"/steps/0/{part}/request/json/0" for part in ("operation", "compensation")
    ]


@pytest.mark.parametrize(
    "body", ['{"\\ud800": 1, "items": [1]}', '{"items": [1], "max_concurrency": 0.1000000000000000055}']
)
def test_what_stands_beside_the_parts_is_checked_by_the_model(body: str) -> None:
    with pytest.raises(InvalidInputError):
        read_checked(body, partial(validated, BatchRequest), has_parts=True)


def test_a_batch_or_saga_is_the_same_by_every_name_of_its_dependencies() -> None:
    def prints(name: str) -> list[str]:
        call = a_call(1, dependency=name)
        batch, saga = (
            {"items": [call, 5]},
            {"steps": [{"name": "a", "operation": call, "compensation": call}]},
        )
        return [fingerprint_of_request("batch", batch), fingerprint_of_request("saga", saga)]

    before = prints("payments")
    with using(parse_config('[dependencies.pay]\nbase_url = "http://pay"\nwas = ["payments"]', {})):
        assert prints("payments") == prints("pay") == before
        assert prints("other") != before


async def test_what_is_said_of_an_item_is_no_longer_than_a_person_reads() -> None:
    (item,) = await items_of({f"{number}" * 50: 1 for number in range(200)})
    assert len(item.detail) == MAX_DETAIL_CHARS


async def test_others_get_their_turn_between_two_items_and_between_two_steps() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await items_of(*[a_call(1)] * 100)
    assert turns >= 100
    steps = [{"name": f"s{number}", "operation": a_call(1)} for number in range(50)]
    await saga_steps(SAGA, validated(SagaRequest, {"steps": steps}), NOON)
    assert turns >= 150
    task.cancel()


def a_saga(*operations: dict[str, Any]) -> SagaRequest:
    steps = [{"name": f"s{number}", "operation": operation} for number, operation in enumerate(operations)]
    return validated(SagaRequest, {"steps": steps})


async def refusal_of(saga: SagaRequest) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        await saga_steps(SAGA, saga, NOON)
    return caught.value


async def test_a_mistake_in_the_form_of_a_saga_hides_none_of_its_operations() -> None:
    hub = TaskHub(json.dumps({"rpcBaseUrl": "127.0.0.1:1"}))
    unknown = a_call(1) | {"dependency": "nobody"}
    reference = a_call({"$result": "zero#/json/id"})
    steps = [
        {"name": "", "operation": unknown},
        {"name": "one", "operation": reference, "compensation": unknown},
        5,
        {"name": "three", "operation": unknown, "compensation": 5, "colour": "red"},
    ]
    checked = [
        "/steps/0/name",
        "/steps/0/operation/dependency",
        "/steps/1/compensation/dependency",
        "/steps/2",
        "/steps/3/colour",
        "/steps/3/compensation",
        "/steps/3/operation/dependency",
        "/typo",
    ]
    for document, told in (({"steps": steps, "typo": 1}, checked), ({"steps": 5}, ["/steps"]), (5, [""])):
        with pytest.raises(InvalidInputError) as caught:
            await accept_saga(hub, SAGA, document)
        assert sorted(problem.pointer for problem in caught.value.problems) == told


async def test_an_operation_of_a_saga_is_as_large_and_as_deep_as_one_alone() -> None:
    large, deep = a_call("x" * app_settings().max_body_bytes), a_call(nested(MAX_DEPTH))
    refusal = await refusal_of(a_saga(a_call(1), large, deep))
    assert [(problem.pointer[:25], problem.detail) for problem in refusal.problems] == [
        ("/steps/1/operation", "is larger than 65536 bytes"),
        ("/steps/2/operation/reques", "nests deeper than 48 levels"),
    ]


def test_a_step_of_far_too_many_keys_is_one_mistake() -> None:
    step = {"name": "a", "operation": {}} | {f"name{number}": 1 for number in range(2_000)}
    with pytest.raises(InvalidInputError) as caught:
        validated(SagaRequest, {"steps": [step]})
    assert [(each.pointer, each.detail[:13]) for each in caught.value.problems] == [
        ("/steps/0", "has 2002 keys")
    ]


async def test_many_references_take_a_small_multiple_of_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = 0

    def counting(text: Any) -> Any:
        nonlocal parsed
        parsed += 1
        return parse(text)

    parse = references.Reference.parse
    body: Any = [{"$result": "s0#/json/id"}] * 1_000 + [{"$result": "nowhere"}] * 1_000
    for _ in range(MAX_DEPTH - 10):
        body = {"a name that is not short at all": body}
    saga = a_saga(a_call(1), a_call(body))
    size = len(json.dumps(body))
    monkeypatch.setattr(references.Reference, "parse", counting)
    refusal = await refusal_of(saga)
    assert parsed == 2_000
    assert refusal.problems[-1].detail == "980 more mistakes are not listed"
    tracemalloc.start()
    try:
        await refusal_of(saga)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20 * size


@pytest.mark.parametrize("unfit", ["1e999", "1" * 301, '"\\ud800"', "0.1000000000000000055"])
def test_an_item_that_is_unfit_is_kept_as_it_was_written(unfit: str) -> None:
    text = f'[{{"a": [{unfit}]}}, {{"rounded 1.5": "Infinity"}}]'
    wrong, right = read_checked(text, list, has_parts=True)
    assert json.loads(text_as_read(right)) == right
    assert text_as_read(wrong) == f'{{"a": [{unfit}]}}'
