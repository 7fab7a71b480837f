import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onebox import CannotStartError
from onebox.durable_task import DurableTask
from onebox.host_json import HostJson, read_host_json
from onebox.host_section import parse_timespan
from onebox.hub.model import TERMINAL, Status


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("00:00:30", timedelta(seconds=30)),
        ("01:02", timedelta(hours=1, minutes=2)),
        ("1.02:03:04", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("00:00:00.1000000", timedelta(milliseconds=100)),
        ("-00:00:05", timedelta(seconds=-5)),
    ],
)
def test_a_timespan_is_read(text: str, span: timedelta) -> None:
    assert parse_timespan(text) == span


@pytest.mark.parametrize("text", ["", "30", "24:00:00", "00:60:00", "00:00:60", "1:2:3:4", "00:00:30s"])
def test_what_is_no_timespan_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a TimeSpan"):
        parse_timespan(text)


def read(tmp_path: Path, content: Any, **settings: str) -> HostJson:
    path = tmp_path / "host.json"
    path.write_text(json.dumps(content), encoding="utf-8-sig")
    return read_host_json(path, settings)


def test_a_silent_file_has_the_hosts_defaults(tmp_path: Path) -> None:
    host_json = read(tmp_path, {"version": "2.0"})
    queues = host_json.extensions.queues
    assert (queues.batch_size, queues.fetch_at_most_running, queues.max_dequeue_count) == (16, 8, 5)
    assert (queues.visibility_timeout, queues.message_encoding) == (timedelta(), "base64")
    assert host_json.extensions.http.route_prefix == "api"
    assert host_json.function_timeout == timedelta(minutes=30)


def test_keys_are_read_without_regard_to_case(tmp_path: Path) -> None:
    content = {"Version": "2.0", "functiontimeout": "00:05:00", "extensions": {"Queues": {"BATCHSIZE": 1}}}
    host_json = read(tmp_path, content)
    assert host_json.function_timeout == timedelta(minutes=5)
    assert host_json.extensions.queues.batch_size == 1
    assert host_json.extensions.queues.fetch_at_most_running == 0


def test_the_timeout_can_be_lifted(tmp_path: Path) -> None:
    assert read(tmp_path, {"version": "2.0", "functionTimeout": "-1"}).function_timeout is None


def test_sections_of_other_extensions_are_passed_over(tmp_path: Path) -> None:
    read(tmp_path, {"version": "2.0", "extensions": {"eventHubs": {"anything": 1}}, "logging": {"x": 1}})


def test_limits_of_requests_are_numbers_or_none(tmp_path: Path) -> None:
    http = {"maxOutstandingRequests": 2, "maxConcurrentRequests": -1}
    limits = read(tmp_path, {"version": "2.0", "extensions": {"http": http}}).extensions.http
    assert (limits.max_outstanding_requests, limits.max_concurrent_requests) == (2, None)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            {"version": "2.0", "extensions": {"http": {"maxOutstandingRequests": 0}}},
            "greater than or equal to 1",
        ),
        ({"version": "3.0"}, "host.json: version: Input should be '2.0'"),
        ({"version": "2.0", "functionTimeout": "00:00:00"}, "functionTimeout must be positive"),
        ({"version": "2.0", "extensions": {"queues": {"batchSize": 33}}}, "extensions.queues.batchSize"),
        (
            {"version": "2.0", "extensions": {"durableTask": {"hubname2": ""}}},
            "extensions.durableTask.hubname2",
        ),
        (
            {"version": "2.0", "extensions": {"queues": {"maxPollingInterval": "00:00:00"}}},
            "maxPollingInterval",
        ),
        ({"version": "2.0", "extensions": {"queues": {"messageEncoding": "hex"}}}, "messageEncoding"),
        ([], "host.json: the file: Input should be a valid dictionary"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, content: Any, complaint: str) -> None:
    with pytest.raises(CannotStartError) as caught:
        read(tmp_path, content)
    assert complaint in str(caught.value)


def test_versions_and_replaced_instances_are_as_the_host_has_them(tmp_path: Path) -> None:
    silent = read(tmp_path, {"version": "2.0"}).extensions.durable_task
    assert (silent.version_match_strategy, silent.version_failure_strategy) == ("CurrentOrOlder", "Reject")
    assert silent.replaceable == TERMINAL
    durable_task = {"versionMatchStrategy": "strict", "overridableExistingInstanceStates": "AnyState"}
    durable = read(
        tmp_path, {"version": "2.0", "extensions": {"durableTask": durable_task}}
    ).extensions.durable_task
    assert durable.version_match_strategy == "Strict"
    assert Status.RUNNING in durable.replaceable


def test_a_key_that_is_nearly_right_is_reported(tmp_path: Path) -> None:
    content = {"version": "2.0", "extensions": {"durableTask": {"hubNam": "x"}}, "foo": 1}
    with pytest.raises(CannotStartError) as refused:
        read(tmp_path, content)
    assert str(refused.value).splitlines() == [
        "host.json: unknown key extensions.durableTask.hubNam, did you mean hubName?",
        "host.json: unknown key foo",
    ]


def test_a_strategy_that_there_is_not_is_named(tmp_path: Path) -> None:
    content = {"version": "2.0", "extensions": {"durableTask": {"versionMatchStrategy": "Newest"}}}
    with pytest.raises(CannotStartError, match=r"versionMatchStrategy.*'None', 'Strict' or 'CurrentOrOlder'"):
        read(tmp_path, content)


def durable_task(tmp_path: Path, content: dict[str, Any]) -> DurableTask:
    return read(tmp_path, {"version": "2.0", "extensions": {"durableTask": content}}).extensions.durable_task


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            {"entityMessageReorderWindowInMinute": 0},
            (
                "unknown key extensions.durableTask.entityMessageReorderWindowInMinute, "
                "did you mean entityMessageReorderWindowInMinutes?"
            ),
        ),
        (
            {"storageProvider": {"controlQueueVisibilityTimout": "00:01:00"}},
            (
                "unknown key extensions.durableTask.storageProvider.controlQueueVisibilityTimout, "
                "did you mean controlQueueVisibilityTimeout?"
            ),
        ),
        (
            {"notifications": {"eventGrid": {"topicEndpont": "x"}}},
            (
                "unknown key extensions.durableTask.notifications.eventGrid.topicEndpont, "
                "did you mean topicEndpoint?"
            ),
        ),
        ({"entityMessageReorderWindowInMinutes": "off"}, "entityMessageReorderWindowInMinutes: Input should"),
        ({"entityMessageReorderWindowInMinutes": -1}, "greater than or equal to 0"),
        ({"extendedSessionsEnabled": "perhaps"}, "extendedSessionsEnabled: Input should be a valid boolean"),
        ({"storageProvider": {"type": "Azure"}}, "storageProvider.type: Input should be 'AzureStorage'"),
        (
            {"storageProvider": {"controlQueueVisibilityTimeout": "00:00:30"}},
            "controlQueueVisibilityTimeout must be between 00:01:00 and 01:00:00",
        ),
        (
            {"storageProvider": {"controlQueueVisibilityTimeout": "01:00:01"}},
            "controlQueueVisibilityTimeout must be between 00:01:00 and 01:00:00",
        ),
        ({"storageProvider": {"partitionCount": 17}}, "partitionCount must be between 1 and 16"),
        ({"storageProvider": {"maxQueuePollingInterval": "00:00:00"}}, "maxQueuePollingInterval"),
        ({"hubName": "my-hub"}, "hubName must be 3 to 50 letters and digits"),
        ({"hubName": "ab"}, "hubName must be 3 to 50 letters and digits"),
        ({"hubName": "h" * 51}, "hubName must be 3 to 50 letters and digits"),
        ({"tracing": {"traceReplayEvents": 7}}, "tracing.traceReplayEvents: Input should be a valid boolean"),
    ],
)
def test_a_mistake_in_the_durable_extensions_settings_is_named(
    tmp_path: Path, content: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(CannotStartError) as refused:
        durable_task(tmp_path, content)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        {"hubName": "my-hub", "storageProvider": {"type": "azureManaged"}},
        {"hubName": "%MY_HUB%"},
        {"storageProvider": {"type": "Netherite", "partitionCount": 32}},
    ],
)
def test_the_bounds_of_azure_storage_are_its_own(tmp_path: Path, content: dict[str, Any]) -> None:
    durable_task(tmp_path, content)


def test_app_settings_override_the_file_by_path_without_regard_to_case(tmp_path: Path) -> None:
    content = {"version": "2.0", "extensions": {"DurableTask": {"hubName": "Mine"}, "http": None}}
    host_json = read(
        tmp_path,
        content,
        azurefunctionsjobhost__extensions__durableTask__ENTITYMESSAGEREORDERWINDOWINMINUTES="0",
        AzureFunctionsJobHost__Extensions__Queues__batchSize="7",
        AzureFunctionsJobHost__extensions__http__maxConcurrentRequests="-1",
        AzureFunctionsJobHost__logging__console__isEnabled="true",
        AzureFunctionsJobHost="of another program",
    )
    durable = host_json.extensions.durable_task
    assert (durable.hub_name, durable.drops_entity_messages) == ("Mine", False)
    assert host_json.extensions.queues.batch_size == 7
    assert host_json.extensions.http.max_concurrent_requests is None


def test_a_mistake_in_an_app_setting_is_named_as_that_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(
        CannotStartError, match=r"unknown key extensions\.durableTask\.hubNam, did you mean hub"
    ):
        read(tmp_path, {"version": "2.0"}, AzureFunctionsJobHost__extensions__durableTask__hubNam="x")


@pytest.mark.parametrize(
    ("content", "dropped"),
    [
        ({}, True),
        ({"entityMessageReorderWindowInMinutes": 0}, False),
        ({"storageProvider": {"type": "azurestorage"}}, True),
        ({"storageProvider": {"type": "azureManaged"}}, False),
        ({"storageProvider": {"type": "mssql"}}, False),
    ],
)
def test_entity_messages_are_dropped_on_azure_storage_while_there_is_a_window(
    tmp_path: Path,
    content: dict[str, Any],
    dropped: bool,  # noqa: FBT001 - a case
) -> None:
    assert durable_task(tmp_path, content).drops_entity_messages is dropped
