import json
import re
from pathlib import Path

from docs.sizing import IDLE_REQUESTS_PER_MINUTE, measured, mixed
from tests.unit.infra.test_main import ROLES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/deploying.md").read_text()
BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text()
PARAMETERS = (ROOT / "infra/main.parameters.json").read_text()

TIMER_RUNS = 30 * 24 * 60 + 30 * 24 * 12 + 30 * 24
COSTS = ("succeeds at once", "fails once", "fails five times", "is refused")
BENCHMARK_COLUMNS = (1, 3, 5, 7)  # Durable Retry's own: 0, 1 and 5 failed, and a dead letter


def row_of(page: str, start: str) -> list[str]:
    """The cells of the table row that begins so."""
    line = next(line for line in page.splitlines() if re.match(rf"\| `?{re.escape(start)}", line))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_parameter_is_documented_with_its_default() -> None:
    given = re.findall(r"\$\{(\w+)=([^}]*)\}", PARAMETERS)
    assert len(given) == len(json.loads(PARAMETERS)["parameters"]) - 2  # azd's own: the name and the region
    for name, default in given:
        assert row_of(PAGE, name)[1].strip("`") == default


def test_every_role_is_documented() -> None:
    assert all(row_of(PAGE, role) for role in ROLES.values())


def test_what_an_operation_costs_is_what_was_measured() -> None:
    rows = ("orchestrator turns", "activity executions", "entity operations")
    measured = [row_of(BENCHMARKS, row)[1:] for row in rows]
    for start, column in zip(COSTS, BENCHMARK_COLUMNS, strict=True):
        *parts, executions, actions = map(int, row_of(PAGE, start)[1:])
        assert parts == [int(cells[column]) for cells in measured]
        assert executions == sum(parts) + 1
        assert actions == sum(parts)


def test_the_worked_example_adds_up() -> None:
    assert f"{TIMER_RUNS:,}" in PAGE
    executions = 1_000_000 * (0.95 * 4 + 0.05 * 8) + TIMER_RUNS
    gigabyte_seconds = (1_000_000 / 20 + TIMER_RUNS) * 2
    requests = round(1_000_000 * mixed(measured(BENCHMARKS)).requests)
    polls = IDLE_REQUESTS_PER_MINUTE * 30 * 24 * 60
    assert f"{executions:,.0f}" in PAGE
    assert row_of(PAGE, "storage requests")[1] == f"{requests:,.0f}"
    assert row_of(PAGE, "requests while idle")[1] == f"{polls:,}"
    assert f"{gigabyte_seconds:,.0f}" in PAGE
    items = {
        "executions": (executions - 250_000) * 0.40 / 1_000_000,
        "memory": (gigabyte_seconds - 100_000) * 0.000026,
        "storage requests": requests * 0.004 / 10_000,
        "requests while idle": polls * 0.004 / 10_000,
        "telemetry": 5 * 2.76,
        "the always-ready instance": 2 * 30 * 24 * 3_600 * 0.000004,
    }
    for start, dollars in items.items():
        assert row_of(PAGE, start)[-1] == f"{dollars:.2f}"
    assert row_of(PAGE, "**together**")[-1] == f"**{sum(items.values()):.2f}**"
