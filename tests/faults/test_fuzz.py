"""Changed inputs over a real mosquitto beside an honest fleet, in short: `make fuzz` has a million."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fuzz.campaign import run_campaign
from tests.kit.night import seed, size

SEED, INPUTS = 20_261_122, size(4_000, 100_000)


@pytest.mark.nightly
@pytest.mark.timeout(size(300, 3600))
@pytest.mark.skipif(shutil.which("mosquitto", path="/usr/sbin:/usr/bin") is None, reason="mosquitto is not installed")  # fmt: skip
async def test_hostile_nodes_cost_the_honest_ones_nothing(tmp_path: Path) -> None:
    """Every value of the honest nodes is exact, every XID pages in time, nothing ends or grows."""
    found = await run_campaign(tmp_path, seed(SEED), INPUTS)
    print("\n".join(found.lines()))
    assert not found.faults, "\n".join(found.faults)
    assert found.inputs == INPUTS
    assert found.pages
    assert found.values > 10_000
