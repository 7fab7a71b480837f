"""The page as a whole."""

from typing import Final

from stores.settings import APP_ROOT
from tools.settings_reference.app import app_settings
from tools.settings_reference.dependencies import dependency_keys, presets
from tools.settings_reference.machine import host_json, platform_settings, programs

REFERENCE: Final = APP_ROOT / "docs" / "settings.md"

_HEAD: Final = """\
# Every setting

Written by `python -m tools.settings_reference` from the code that reads them; a test fails when the two
differ. What to choose: [policies](policies.md), [circuit](circuit.md), [sources](sources.md), [dead
letters](dead-letters.md)."""

_APP: Final = """\
## App settings

Environment variables: in Azure the app's settings, locally `Values` of `local.settings.json`, over which
the real environment wins. An empty value counts as not set. All are checked when the app loads; one that
cannot be used stops the start, and every mistake is named. The settings of a source come together: some
of them without the others stop the start too. A connection is a connection string, or settings that begin
with its name and `__`, such as `EVENT_HUB_CONNECTION__fullyQualifiedNamespace`, for a managed identity."""

_PLATFORM: Final = "### Read by others"

_DEPENDENCIES: Final = """\
## dependencies.toml

`${NAME}` in any string takes the app setting `NAME`. Every table may also stand under `[defaults]`; a
dependency's own keys lie over it, one by one. A key of `retry` that is not written takes the preset's
value; the defaults shown are those of `standard`. Durations are seconds, in decimals where needed; the
longest is a year. Unknown keys stop the start."""

_PRESETS: Final = "### Presets"

_HOST: Final = """\
## host.json

What this app sets, and why. Other keys are the host's: [onebox](onebox.md#what-it-honours) says which it
acts on."""

_PROGRAMS: Final = "## Programs on one machine"


def reference() -> str:
    """Give the text of docs/settings.md."""
    sections = [
        _HEAD,
        _APP,
        *app_settings(),
        _PLATFORM,
        platform_settings(),
        _DEPENDENCIES,
        *dependency_keys(),
        _PRESETS,
        presets(),
        _HOST,
        host_json(),
        _PROGRAMS,
        *programs(),
    ]
    return "\n\n".join(sections) + "\n"
