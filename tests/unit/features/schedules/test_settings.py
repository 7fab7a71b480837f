from pathlib import Path

import pytest

from durable_retry.features.schedules.settings import ScheduleSettings
from durable_retry.settings.group import SettingsError
from durable_retry.settings.intake import IntakeSettings

SCHEDULE = """
[operations.a]
schedule = "0 * * * * *"
dependency = "reports"
request = { method = "GET" }
"""


def test_schedules_stand_in_the_setting_or_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text(SCHEDULE)
    for value in (SCHEDULE, str(file)):
        settings = ScheduleSettings.read({"SCHEDULED_OPERATIONS": value})
        assert [each.name for each in settings.scheduled_operations] == ["a"]


def test_a_file_that_cannot_be_read_is_reported() -> None:
    with pytest.raises(SettingsError, match="SCHEDULED_OPERATIONS: names a file that cannot be read"):
        ScheduleSettings.read({"SCHEDULED_OPERATIONS": "nowhere.toml"})


def test_the_key_of_a_run_is_its_name_and_due_time_whatever_else_makes_keys() -> None:
    assert IntakeSettings.read({"KEY_POINTERS": "/a"}).pointers_for("timer") == ()


def test_without_the_setting_there_are_no_schedules() -> None:
    assert ScheduleSettings.read({"SCHEDULED_OPERATIONS": " "}).scheduled_operations == ()


def test_a_comment_is_no_name_of_a_file() -> None:
    with pytest.raises(SettingsError, match="needs at least one table"):
        ScheduleSettings.read({"SCHEDULED_OPERATIONS": "# see schedules.toml"})
