# Durable Retry. Each target sets up what it needs first; `make setup` is quick when nothing changed.
.PHONY: setup run test test-long demo screenshots bench crash drill docs dist release format
.DEFAULT_GOAL := test
export PYTHON

PY := .venv/bin/python
# Options for the command behind a target, such as: make run ARGS="--port 8080"
ARGS ?=

setup:
	@scripts/setup.sh

run: setup
	@exec $(PY) -m scripts.run $(ARGS)

test: setup
	@scripts/check.sh $(ARGS)

# All of it, or a bounded part in a random order: make test-long ARGS="--sample --seed 7"
test-long: setup
	@exec $(PY) -m tests.long_checks $(ARGS)

demo: setup
	@exec $(PY) -m examples.demo

# Pictures of the dashboard for README and documents; needs a Chromium (scripts/chromium.sh).
screenshots: setup
	@exec $(PY) -m examples.demo.pictures

bench: setup
	@$(PY) -m bench $(ARGS)

# kill -9 under load, or less of it: make crash ARGS="--operations 2000 --kills 4 --seed 7"
crash: setup
	@$(PY) -m bench.crash $(ARGS)

# An outage on this project and its peers, which it installs into .bench/ with npm; takes ten minutes.
drill: setup
	@$(PY) -m bench $(ARGS) drill

# With what draws the diagrams, which a site that is only checked does without.
docs: setup
	@npm install --silent --no-audit --no-fund --no-save --prefix .site-tools mermaid@12.3.0
	@$(PY) -m docs.published
	@$(PY) -m sphinx -q -W --keep-going -b html $(ARGS) docs .site && echo "docs: .site/index.html"

# Wheels of the packages in dist/, for an app with an environment of its own; it needs no set-up here.
dist:
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 13) and "dist: activate an environment of Python 3.13: python3 is " + sys.version.split()[0])'
	@python3 -m scripts.release --wheels $(ARGS)

# Wheels and sdists of the packages in dist/, built and checked; see CONTRIBUTING.md.
release: setup
	@$(PY) -m scripts.release $(ARGS)

format: setup
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .
