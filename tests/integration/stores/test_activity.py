from datetime import timedelta

import pytest
from azure.core.exceptions import ServiceResponseError

from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.facts import TargetType
from durable_retry.settings.configuration import using
from durable_retry.storage import tables
from durable_retry_console.activity import changes, store
from durable_retry_console.activity.shapes import ActivityFilter, ActivityItem, ActivityKind, ActivityTarget
from durable_retry_console.activity.store import ActivityWriter, list_activity, remove_activity_before
from tests.support.builders import NOON, after

pytestmark = pytest.mark.usefixtures("any_tables")

HUB = TaskHub("unused")
ALL = ActivityFilter()


@pytest.fixture(autouse=True)
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ActivityWriter:
    name = "".join(letter for letter in request.node.name if letter.isalnum())[:60]
    writer = ActivityWriter()
    monkeypatch.setattr(store, "TABLE", name)
    monkeypatch.setattr(changes, "WRITER", writer)
    monkeypatch.setattr(changes, "_compared", {})
    return writer


def item(number: int, **more: object) -> ActivityItem:
    """The entry of a second of noon."""
    given = {
        "at": after(number),
        "kind": ActivityKind.ACTION,
        "who": "ada",
        "what": f"act {number}",
        "target": ActivityTarget(type=TargetType.OPERATION, id=f"op-{number}", url=None),
    }
    return ActivityItem.model_validate(given | more)


def write(writer: ActivityWriter, *items: ActivityItem) -> None:
    for each in items:
        writer.note(each)
    assert writer.flush()


async def whats(wanted: ActivityFilter, limit: int = 50) -> list[str]:
    """What all pages show."""
    found, cursor = [], None
    while True:
        page = await list_activity(wanted, limit, cursor)
        found += [each.what for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_the_newest_is_first_and_pages_lead_to_all(
    writer: ActivityWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(writer, *map(item, range(7)))
    newest_first = [f"act {number}" for number in range(6, -1, -1)]
    assert await whats(ALL) == await whats(ALL, limit=2) == newest_first
    # A page that has looked at its rows leads on, also where nothing matched.
    monkeypatch.setattr(store, "_MAX_ROWS", 2)
    monkeypatch.setattr(store, "_ROWS_AT_ONCE", 1)
    assert await whats(ActivityFilter(words="op-0")) == ["act 0"]
    assert await whats(ALL, limit=3) == newest_first


async def test_an_entry_with_a_name_replaces_the_one_before(writer: ActivityWriter) -> None:
    for what in ("is open", "is open; 1 probe failed"):
        writer.note(item(1, what=what), "outage")
    assert writer.flush()
    assert await whats(ALL) == ["is open; 1 probe failed"]
    writer.note(item(1, what="was open; 2 probes failed"), "outage")
    assert writer.flush()
    assert await whats(ALL) == ["was open; 2 probes failed"]


async def test_a_span_of_time_has_its_first_instant_and_not_its_last(writer: ActivityWriter) -> None:
    write(writer, *map(item, range(5)))
    assert await whats(ActivityFilter(after=after(1), before=after(3))) == ["act 2", "act 1"]


async def test_entries_wait_while_storage_is_away(
    writer: ActivityWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise ServiceResponseError("away")

    with monkeypatch.context() as outage:
        outage.setattr(tables, "with_table", away)
        writer.note(item(1))
        assert not writer.flush()
        writer.note(item(2))
    assert writer.flush()
    assert await whats(ALL) == ["act 2", "act 1"]


async def test_an_entry_that_cannot_be_read_hides_no_other(writer: ActivityWriter) -> None:
    write(writer, item(1))
    await tables.merge(store.TABLE, {"PartitionKey": "entry", "RowKey": "0-broken", "item_0": "{"})
    assert await whats(ALL) == ["act 1"]


async def test_old_entries_are_removed(writer: ActivityWriter) -> None:
    write(writer, *map(item, range(3)))
    assert await remove_activity_before(after(2)) == 2
    assert await whats(ALL) == ["act 2"]


async def test_what_people_did_is_kept_as_long_as_dead_letters(writer: ActivityWriter) -> None:
    write(writer, item(0))
    await changes.remove_old_activity(HUB, NOON + timedelta(days=29))
    assert await whats(ALL) == ["act 0"]
    await changes.remove_old_activity(HUB, NOON + timedelta(days=31))
    assert await whats(ALL) == []


CONFIG = """
[dependencies.payments]
base_url = "https://payments.example.com"
retry = { max_attempts = %d }
[dependencies.stock]
base_url = "https://stock.example.com"
"""


async def test_a_change_of_settings_is_noted_with_the_names_that_changed(
    writer: ActivityWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    with using(parse_config(CONFIG % 3, {})):
        await changes.note_changes(HUB, after(0))
        await changes.note_changes(HUB, after(1))
        assert writer.flush()
        assert await whats(ALL) == []
    monkeypatch.setenv("MAX_BODY_BYTES", "1000")
    with using(parse_config(CONFIG % 4, {})):
        await changes.note_changes(HUB, after(2))
    assert writer.flush()
    (noted,) = (await list_activity(ALL, 50, None)).items
    assert (noted.kind, noted.reason) == (ActivityKind.SETTINGS, "MAX_BODY_BYTES, dependencies.payments")


async def test_a_process_compares_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def replaced(name: str, _: object, **_how: bool) -> list[str]:
        asked.append(name)
        return []

    monkeypatch.setattr(changes, "replace_known", replaced)
    with using(parse_config(CONFIG % 3, {})):
        await changes.note_changes(HUB, after(0))
        await changes.note_changes(HUB, after(60))
    assert asked == ["code", "settings"]


async def test_other_code_is_a_deployment(writer: ActivityWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    with using(parse_config(CONFIG % 3, {})):
        for at, code in enumerate(({"app": "1", "lib": "1"}, {"app": "1", "late": "1"}, {"app": "2"})):
            monkeypatch.setattr(changes, "running_code", lambda code=code: code)
            await changes.note_changes(HUB, after(at))
    assert writer.flush()
    (noted,) = (await list_activity(ALL, 50, None)).items
    assert (noted.kind, noted.at, noted.reason) == (ActivityKind.DEPLOYMENT, after(2), "app")
