# Durable Retry. Each target sets up what it needs first; `make setup` is quick when nothing changed.
.PHONY: setup run test demo bench format
.DEFAULT_GOAL := test
export PYTHON

PY := .venv/bin/python
# Options for the command behind a target, such as: make run ARGS="--port 8080"
ARGS ?=

setup:
	@tools/setup.sh

run: setup
	@exec $(PY) -m tools.run $(ARGS)

test: setup
	@tools/check.sh $(ARGS)

demo: setup
	@exec $(PY) -m tools.demo

bench: setup
	@$(PY) -m bench $(ARGS)

format: setup
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .
