# Durable Retry. Each target sets up what it needs first; `make setup` is quick when nothing changed.
.PHONY: setup run test demo bench format
.DEFAULT_GOAL := test
export PYTHON

PY := .venv/bin/python

setup:
	@tools/setup.sh

run: setup
	@$(PY) -m tools.run

test: setup
	@tools/check.sh

bench: setup
	@$(PY) -m bench

format: setup
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .
