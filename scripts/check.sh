#!/usr/bin/env bash
# The checks of `make test`, cheapest first: all but the tests marked `long`, which are `make test-long`.
# With arguments, only the tests that they choose: scripts/check.sh -k circuit
set -euo pipefail
cd "$(dirname "$0")/.."
py=.venv/bin/python
# The tests start an app about a hundred times. Each start would compile some 360 files where nothing is kept of that.
unset PYTHONDONTWRITEBYTECODE

$py -m ruff format --check .
$py -m ruff check .
if [ "$#" -gt 0 ]; then
    $py -m mypy .
    exec $py -m pytest "$@"
fi
$py -m mypy . &
types=$!
# The site is built anew, and a warning fails it.
$py -m sphinx -q -W --keep-going -E -b html docs .site &
site=$!
trap 'kill "$types" "$site" 2>/dev/null || true' EXIT
# The rules are covered branch by branch: a branch that no test of its module takes fails the check. A line costs
# three times as much while it is counted, so nothing else runs under it.
measured=(tests/unit/[a-z]*/ packages/console/tests/unit)
$py -m coverage erase
$py -m coverage run -m pytest -m "not long" -n 2 --dist worksteal "${measured[@]}"
wait "$types"
wait "$site"
$py -m coverage combine --quiet
if ! report=$($py -m coverage report --show-missing --skip-covered --fail-under=100); then
    printf '%s\n' "$report" "check: the rules (durable_retry/rules/, features/ and packages/console/) have branches that no test of theirs takes." >&2
    exit 1
fi
# What shares an app stays on one worker, see conftest.py: a start takes seconds. What kills processes, or takes long,
# is marked `long`.
$py -m pytest -m "not long" -n 4 --dist loadgroup --no-loadscope-reorder "${measured[@]/#/--ignore=}"
