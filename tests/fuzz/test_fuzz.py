"""Thousands of changed inputs in this process: none is a fault, and the honest node's values are exact.

The seed is fixed, so that a clone fails only where the code does; `make nightly` has another, and `make fuzz`, over a
real broker. A fault prints the command that makes its input again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.aggregator.feed import ARRIVAL
from tests.fuzz import targets, twin
from tests.fuzz.campaign import MOST_KEPT
from tests.fuzz.inputs import KINDS, SHARES, make
from tests.fuzz.mutation import NUMBERS, TEXTS, mutate
from tests.fuzz.quiet import kept_beyond
from tests.fuzz.run import plan, run, shares_of
from tests.kit.night import seed, size
from tests.telemetry.typed import typed

SEED = 20_261_122
INPUTS = size(2_000, 400_000)


@pytest.mark.nightly
@pytest.mark.timeout(size(300, 3600))
async def test_no_input_is_a_fault_and_the_honest_node_is_exact() -> None:
    """Every kind; rules, commits and viewers go on in between."""
    outcome = await run(seed(SEED), plan(shares_of(INPUTS)))
    assert not outcome.faults, "\n\n".join(outcome.faults)
    assert outcome.inputs == INPUTS
    assert outcome.audited > INPUTS // 20
    assert outcome.compared > INPUTS // 40, "with what a twin has that hears the honest node alone"


def test_an_input_is_a_function_of_its_seed_kind_and_number() -> None:
    """So that a fault can be made again anywhere; other seeds and numbers give other inputs."""
    for kind in KINDS:
        ours = [make(kind, 1, number, ARRIVAL) for number in range(12)]
        assert ours == [make(kind, 1, number, ARRIVAL) for number in range(12)], kind
        assert len({each.body for each in ours}) > 3, kind
        assert ours != [make(kind, 2, number, ARRIVAL) for number in range(12)], kind


def test_the_shares_are_of_every_kind() -> None:
    assert set(SHARES) == set(KINDS)
    assert sum(SHARES.values()) == 20_000
    assert sum(shares_of(1_000_000).values()) == 1_000_000
    assert len(plan(SHARES)) == 20_000


def leaves(tree: object, depth: int = 0) -> Iterator[str]:
    """Yield each value below, as text, and how deep the deepest is."""
    if isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(item, depth + 1)
    else:
        yield tree if isinstance(tree, str) else repr(tree)
    if depth == 40:
        yield "deep"


def test_changes_reach_every_edge() -> None:
    """Each edge of numbers, each hostile text, and great depth."""
    rng = random.Random(1)
    seen: set[str] = set()
    for _ in range(6000):
        seen.update(leaves(mutate({"a": 1, "b": ["x", 2.0], "c": {}}, rng)))
    assert {repr(number) for number in NUMBERS} <= seen
    assert set(TEXTS) <= seen
    assert "deep" in seen


def series(inputs: int, leak: int, minutes: float = 18.0) -> list[int]:
    """Return resident bytes once a second while so many inputs come: a level that flattens as it was measured, what a
    moment takes every seven seconds, and `leak` bytes that are kept of each input."""
    shares = [minute / 18 for minute in (1, 5, 8, 13, 18)]
    seconds = int(60 * minutes)
    return [
        int(np.interp(second / seconds, shares, (78, 100, 110, 117, 121)) * 2**20)
        + leak * inputs * second // seconds
        + (90 << 20) * (second % 7 == 0)
        for second in range(seconds)
    ]


def test_a_leak_of_each_input_is_told_from_caches_that_fill() -> None:
    """Judge by what is kept of the second half: peaks prove nothing, and neither does growth that ends."""
    quiet = [80 << 20] * 1080
    assert 0 < kept_beyond(series(1_000_000, 0), quiet) < MOST_KEPT / 2
    assert kept_beyond(series(1_000_000, 1000), quiet) > MOST_KEPT
    assert kept_beyond(series(100_000, 1000, 2.0), quiet[:120]) > MOST_KEPT
    assert kept_beyond(series(1_000_000, 80), quiet) > MOST_KEPT
    steady, grows = [100 << 20] * 60, [(100 + second) << 20 for second in range(60)]
    assert kept_beyond(grows, grows) == 0
    assert kept_beyond(grows, steady) == 30 << 20
    assert kept_beyond(steady, grows[::-1]) == 0, "the quiet one gave memory back"


async def test_the_twin_finds_what_differs_by_value_or_by_type(tmp_path: Path) -> None:
    """A member of an enumeration that became the text which it equals, a label, a stored value, an alert."""
    target = targets.BusTarget(tmp_path)
    try:
        await target.settle()
        node = target.core.fleet.nodes[twin.HONEST]
        right = node.inventory
        node.inventory = msgspec.structs.replace(right, host={**right.host, "rack": "other"})
        found = twin.differences(await target.attacked.shown(), await target.alone.shown())
        assert any("its line in the list of nodes" in one for one in found), found
        served = await target.attacked.pages_served()
        assert all(one[:3] == ["200", "", "!doctype html>"] for one in served.values()), served
        found = twin.differences(served, await target.alone.pages_served())
        assert [one.split(": ")[0] for one in found] == [f"the web page {twin.PAGES[0]}"]
        with pytest.raises(targets.FuzzError, match="other than alone"):
            await target.settle()
        node.inventory = right
        shown = await target.attacked.shown()
        assert not twin.differences(shown, await target.alone.shown())
        assert b"kilowatch_gpu_job_info" in shown["the page of its readings"]
        assert not twin.differences(target.attacked.stored(), target.alone.stored())
        target.attacked.core.commit()
        found = twin.differences(target.attacked.stored(), target.alone.stored())
        assert len(found) > 10
        alerts = [one for one in target.alone.pipeline.alerts() if one.node == twin.HONEST]
        assert alerts, "an XID of the honest node fires"
        sides = target.attacked, target.alone
        while not target.alone.told:
            for side in sides:
                side.core.now, side.core.wall = side.core.now + 1, side.core.wall + 10**9
                side.evaluate()
        assert target.attacked.told == target.alone.told
        assert any(twin.CIRCUIT in told for told in target.alone.told)
        target.attacked.told.clear()
        assert not twin.told_alone(*sides), "it may come later"
        target.alone.core.now += twin.NOTICE_SECONDS + 1
        assert twin.told_alone(*sides) == list(target.alone.told)
        texts = [msgspec.structs.replace(one, severity=str(one.severity.value)) for one in alerts]
        assert texts == alerts
        assert twin.differences({"alerts": typed(texts)}, {"alerts": typed(alerts)})
    finally:
        await target.close()


async def test_a_fault_is_found_and_named_with_its_command() -> None:
    """The oracle itself: an honest frame that a hostile node overwrote is a fault."""
    honest = targets.BusTarget._audit_newest

    def spoiled(self: targets.BusTarget) -> None:
        rows = self.core.fleet.nodes[targets.HONEST].rows[targets.Table.GPU]
        self.core.fleet.matrices[targets.GPU_FAST].gauges[rows.start, 0] += 1
        honest(self)

    targets.BusTarget._audit_newest = spoiled  # type: ignore[method-assign]
    try:
        outcome = await run(SEED, [("frame", number) for number in range(2 * targets.TICK)])
    finally:
        targets.BusTarget._audit_newest = honest  # type: ignore[method-assign]
    assert outcome.faults
    assert f"python -m tests.fuzz --kind frame --seed {SEED}" in outcome.faults[0]
