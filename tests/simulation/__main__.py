"""Runs simulated worlds from a terminal: python -m tests.simulation --seed 7, or --seeds 100."""

import argparse
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from secrets import randbelow

from tests.simulation.chances import small_size
from tests.simulation.crowds.crowd import Crowd
from tests.simulation.crowds.invariants import broken_in
from tests.simulation.crowds.story import MOST, crowd_story
from tests.simulation.invariants import broken
from tests.simulation.mistakes import ONCE, PLAUSIBLE
from tests.simulation.shrink import found_in, shrunk
from tests.simulation.story import simulated

OPERATIONS = 200
SEEDS = 1_000_000_000


def main() -> int:
    """Run the worlds that the options name; return 1 when something does not hold in one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the first world, from which others count on; else drawn")
    parser.add_argument("--seeds", type=int, default=1, help="how many worlds to run")
    parser.add_argument("--operations", type=int, help=f"of each world: {OPERATIONS}, of a crowd {MOST}")
    parser.add_argument("--crowd", action="store_true", help="operations wait for limits and places")
    small = "worlds of one to six operations and minutes: about ten a second and process"
    parser.add_argument("--small", action="store_true", help=small)
    parser.add_argument("--processes", type=int, default=1, help="that run worlds side by side")
    parser.add_argument("--log", action="store_true", help="print what happened")
    parser.add_argument("--digest", action="store_true", help="print only what two runs of a seed share")
    parser.add_argument("--without", default="", help="kinds of trouble that never happen: early,skewed")
    parser.add_argument("--losing", action="store_true", help="messages are lost as well, for good")
    names = [mistake.name for mistake in (*ONCE, *PLAUSIBLE)]
    parser.add_argument("--mistake", choices=names, help="made in the app: a world has to show it")
    options = parser.parse_args()
    drawn = [randbelow(SEEDS) for _ in range(options.seeds)]
    seeds = drawn if options.seed is None else [*range(options.seed, options.seed + options.seeds)]
    if options.mistake is not None:
        return _show(options.mistake, seeds, options)
    return _run_all(seeds, options)


def _size(seed: int, options: argparse.Namespace) -> int:
    if options.operations is not None:
        return int(options.operations)
    return small_size(seed) if options.small else MOST if options.crowd else OPERATIONS


def _run_all(seeds: list[int], options: argparse.Namespace) -> int:
    """Run worlds, print what does not hold, and how many there were in a second."""
    begun, results = time.perf_counter(), []
    run = partial(_run_crowd if options.crowd else _run, options=options)
    with ProcessPoolExecutor(options.processes) as pool:
        for text, result in pool.map(run, seeds) if options.processes > 1 else map(run, seeds):
            sys.stdout.write(text)
            results.append(result)
    if len(seeds) > 1:
        seconds = time.perf_counter() - begun
        used = sum(os.times()[:4])  # of this process and those that it has ended
        rate = f"{len(seeds) / seconds:.1f} a second, {len(seeds) / used:.1f} in a second of processor time"
        sys.stdout.write(f"{len(seeds)} worlds in {seconds:.1f} s: {rate}\n")
    return max(results)


def _show(name: str, seeds: Iterable[int], options: argparse.Namespace) -> int:
    """Play worlds until one shows a mistake that is made in the app; return 0 then."""
    (mistake,) = (each for each in (*ONCE, *PLAUSIBLE) if each.name == name)
    for number, seed in enumerate(seeds, start=1):
        if (
            finding := found_in(seed, _size(seed, options), mistake.patch(), losing=mistake.losing)
        ) is not None:
            sys.stdout.write(f"world {number}: {finding.invariant}: {finding.contradiction}\n")
            return 0
    sys.stdout.write(f"no world of {options.seeds} shows it\n")
    return 1


def _run(seed: int, options: argparse.Namespace) -> tuple[str, int]:
    """Run one world; return what is to be printed of it, and 1 when something does not hold in it."""
    without = tuple(filter(None, options.without.split(",")))
    operations = _size(seed, options)
    story = simulated(seed, operations, without=without, losing=options.losing)
    if options.digest:
        return f"{story.world.digest()}\n", 0
    lines = [*story.world.log, ""] if options.log else []
    found = broken(story)
    lines.append(f"seed {seed}: {len(story.ends)} runs of operations, {len(story.world.deaths)} crashes")
    for name, contradictions in found.items():
        lines += [f"  {name}: {each}" for each in contradictions[:10]]
    finding = None
    if found and not options.log:
        finding = found_in(seed, operations, without=without, losing=options.losing)
    if finding is not None:
        lines.append(f"the smallest such world: {shrunk(finding)}")
    return "\n".join([*lines, ""]), 1 if found else 0


def _run_crowd(seed: int, options: argparse.Namespace) -> tuple[str, int]:
    """Run a crowd; return what is to be printed of it, and 1 when something does not hold for it."""
    story = crowd_story(seed, _size(seed, options))
    if options.digest:
        return f"{story.world.digest()}\n", 0
    lines = [*story.world.log, ""] if options.log else []
    lines.append(f"seed {seed}: {Crowd.of(seed, _size(seed, options))}")
    found = broken_in(story)
    for name, contradictions in found.items():
        lines += [f"  {name}: {each}" for each in contradictions[:3]]
    return "\n".join([*lines, ""]), 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
