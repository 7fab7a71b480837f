"""Makes the world in which something does not hold as small and as calm as it can be made."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from tests.simulation.chances import Chances
from tests.simulation.invariants import broken
from tests.simulation.story import Story, simulated

_LINES: Final = 40
_MOST_ROUNDS: Final = 3


@dataclass(frozen=True)
class Finding:
    """A world in which an invariant does not hold, and how to play it again.

    Attributes:
        without: Kinds of trouble that it does not need.
        losing: Whether messages are lost in it, for good.
        invariant: The first that does not hold.
        contradiction: What contradicts it.
        lines: What happened to whom the contradiction is about.
    """

    seed: int
    operations: int
    without: tuple[str, ...]
    losing: bool
    invariant: str
    contradiction: str
    lines: tuple[str, ...]

    @property
    def command(self) -> str:
        options = f"--seed {self.seed} --operations {self.operations}"
        without = f" --without {','.join(self.without)}" if self.without else ""
        return f"python -m tests.simulation {options}{without}{' --losing' if self.losing else ''}"

    def __str__(self) -> str:
        head = f"{self.invariant}: {self.contradiction}\nplay it again with: {self.command} --log\n"
        return head + "".join(f"    {line}\n" for line in self.lines)


def found_in(
    seed: int, operations: int, *defects: Any, without: Sequence[str] = (), losing: bool = False
) -> Finding | None:
    """Return what does not hold in a world; None when everything does."""
    story = simulated(seed, operations, *defects, without=without, losing=losing)
    for invariant, contradictions in broken(story).items():
        lines = _about(story, contradictions[0])
        return Finding(seed, operations, tuple(without), losing, invariant, contradictions[0], lines)
    return None


def shrunk(finding: Finding, *defects: Any) -> Finding:
    """Return the smallest world found with the same seed in which the same invariant does not hold.

    It tries fewer operations and each kind of trouble left out, and begins anew as long as that led to
    something: what is left out changes all draws after it. A round is some twenty worlds.

    Args:
        finding: To begin with.
        defects: Patches that break the app.
    """
    kept = finding
    for _ in range(_MOST_ROUNDS):
        before = kept
        for less in (3, 2, 1, *(each.name for each in fields(Chances))):
            if less in kept.without:
                continue
            size = less if isinstance(less, int) else kept.operations
            without = (*kept.without, less) if isinstance(less, str) else kept.without
            if size > kept.operations or (size, without) == (kept.operations, kept.without):
                continue
            again = found_in(kept.seed, size, *defects, without=without, losing=kept.losing)
            if again is not None and again.invariant == finding.invariant:
                kept = again
        if kept is before:
            break
    return kept


def _about(story: Story, contradiction: str) -> tuple[str, ...]:
    """Return the lines of the log on the ids that a contradiction names; all when none is on them."""
    names = {word.split(".")[0] for word in re.findall(r"[\w.-]+", contradiction) if "-" in word}
    lines = [line for line in story.world.log if any(name in line for name in names)]
    return tuple((lines or story.world.log)[:_LINES])
