"""The app that the hub's tests run."""

from durabletask.scheduled.orchestrator import execute_schedule_operation_orchestrator
from durabletask.scheduled.schedule_entity import ENTITY_NAME, Schedule

from tests.support.onebox.app import counters, families, steps, waits
from tests.support.onebox.app.activities import activities
from tests.support.onebox.durable_app import App


def make_app() -> App:
    """The app, with nothing remembered from another one."""
    app = App()
    for part in (activities(), steps.part, waits.part, families.part, counters.part):
        app.include(part)
    app.orchestrator(execute_schedule_operation_orchestrator)
    app.entities_by_name[ENTITY_NAME] = Schedule
    return app
