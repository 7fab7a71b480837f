"""Commands that hold every dependency, show that, and let what is held go."""

from typing import Any, Final

from retryctl.commands import Ask, Command
from retryctl.output import Lines, Rows, facts, fill, plural

_HOLD: Final = "status reason by since until thaw"
_WAVE: Final = "wave {number} of {of}, {released} of {waiting} let go, by {by}"


def _held(document: Any) -> Lines:
    yield facts(document, _HOLD)


def _shown(document: Any) -> Lines:
    wave = document.get("wave")
    thaw = wave and fill(_WAVE, wave | {"of": len(wave["waves"])})
    yield from _held(document | {"thaw": thaw})
    preview = document["preview"]
    least = "" if preview["complete"] else "at least "
    yield f"\nwithin the hour {least}{plural(preview['operations'], 'operation')} would run"
    if preview["by_dependency"]:
        yield Rows(preview["by_dependency"], "dependency operations held first_at:first")


def _thawed(document: Any) -> Lines:
    shares = ", ".join(f"{share:.3g}" for share in document["waves"])
    yield fill(f"thaws in waves of {shares}; each is watched for {{wave_seconds}}", document)


COMMANDS: Final = (
    Command(
        "hold",
        "accept everything and start nothing, at any dependency",
        Ask("POST hold", "since", _held),
        "why for_seconds deadlines_go_on",
    ),
    Command(
        "held", "show whether everything is held, and what would run", Ask("GET hold", "preview", _shown)
    ),
    Command(
        "thaw",
        "let what is held go in waves, until a circuit opens",
        Ask("POST hold/thaw", "waves", _thawed),
        "waves wave_seconds",
    ),
)
