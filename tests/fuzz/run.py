"""A run of inputs without a broker, which finds the one that did it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import tempfile
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.aggregator.feed import ARRIVAL
from tests.fuzz.inputs import SHARES, FuzzInput, make
from tests.fuzz.targets import TICK, BusTarget, Errors, targets

PART = 125_000
"""Inputs that one process is given: a tick costs more with each alert that they raised, 3,000 after 60,000."""


@dataclass
class Outcome:
    """Result of a run."""

    inputs: int = 0
    faults: list[str] = field(default_factory=list)
    audited: int = 0
    """Values of the honest node that were compared."""
    compared: int = 0
    """Pages, pushes, alerts, notices and stored rows of it that were compared with those of the twin."""


def plan(shares: dict[str, int]) -> list[tuple[str, int]]:
    """Return the kinds and numbers of a run: messages of the bus interleaved, each kind in order."""
    order = []
    for kind, count in shares.items():
        order += [((number + 0.5) / count, kind, number) for number in range(count)]
    return [(kind, number) for _, kind, number in sorted(order)]


async def run(seed: int, wanted: Iterable[tuple[str, int]], most_faults: int = 20) -> Outcome:
    """Give inputs to their targets; every fault names the command that makes it again."""
    pairs = list(wanted)
    outcome = Outcome()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kilowatch-fuzz-")))
        errors: Errors = stack.enter_context(Errors().listening())
        async with targets(folder, {kind for kind, _ in pairs}) as found:
            since: dict[int, list[FuzzInput]] = {}
            for kind, number in pairs:
                target = found[kind]
                now = target.core.wall if isinstance(target, BusTarget) else ARRIVAL
                given = make(kind, seed, number, now)
                recent = since.setdefault(id(target), [])
                recent.append(given)
                outcome.inputs += 1
                try:
                    await target.feed(given)
                    errors.check()
                    if len(recent) >= TICK:
                        suspects, since[id(target)] = list(recent), []
                        await target.settle()
                        errors.check()
                        recent = suspects
                except Exception as error:  # noqa: BLE001 - any exception is what is looked for
                    outcome.faults.append(_described(error, seed, given, since[id(target)] or recent))
                    since[id(target)] = []
                    errors.texts.clear()
                    if len(outcome.faults) >= most_faults:
                        break
            for target in dict.fromkeys(found.values()):
                if isinstance(target, BusTarget) and not outcome.faults:
                    await target.settle()
                    outcome.audited += target.audit()
                    outcome.compared += target.compared
    return outcome


def run_in_parts(seed: int, wanted: Sequence[tuple[str, int]], size: int = PART) -> Iterator[Outcome]:
    """Give inputs to targets in processes of their own, as many at a time as there are cores; yield how each ended,
    in their order."""
    parts = [wanted[first : first + size] for first in range(0, len(wanted), size)]
    context = multiprocessing.get_context("spawn")  # nothing of a campaign before it is taken along
    with ProcessPoolExecutor(mp_context=context) as pool:
        yield from pool.map(functools.partial(_run_part, seed), parts)


def _run_part(seed: int, wanted: Sequence[tuple[str, int]]) -> Outcome:
    return asyncio.run(run(seed, wanted))


def _described(error: Exception, seed: int, given: FuzzInput, recent: Sequence[FuzzInput]) -> str:
    lines = "".join(traceback.format_exception(error)[-6:])
    first = next((one.number for one in recent if one.kind == given.kind), given.number)
    return (
        f"{given.kind} {given.number}: {given.topic} {given.body[:300]!r}\n{lines}"
        f"python -m tests.fuzz --kind {given.kind} --seed {seed} --first {given.number} --count 1\n"
        f"or, where it is the state that others left: --first {first} --count {given.number - first + 1}"
    )


def shares_of(inputs: int, kinds: Collection[str] = SHARES) -> dict[str, int]:
    """Return how many of each of some kinds so many inputs are."""
    shares = {kind: SHARES[kind] for kind in kinds}
    whole = sum(shares.values())
    return {kind: max(1, count * inputs // whole) for kind, count in shares.items()}
