#!/usr/bin/env bash
# Every check that CI runs, cheapest first.
set -euo pipefail
cd "$(dirname "$0")/.."
py=.venv/bin/python

$py -m ruff format --check .
$py -m ruff check .
$py -m mypy .
$py -m pytest "$@"
