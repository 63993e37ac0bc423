"""Changed inputs over a real mosquitto beside an honest fleet, in short: `make fuzz` has a million."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fuzz.campaign import run_campaign
from tests.fuzz.inputs import BUS
from tests.fuzz.run import plan, run_in_parts, shares_of
from tests.kit.night import seed, size

SEED, INPUTS = 20_261_122, size(2_000, 100_000)
PART = size(1_000, 10_000)
"""Messages of a process."""


@pytest.mark.nightly
@pytest.mark.timeout(size(300, 3600))
@pytest.mark.skipif(shutil.which("mosquitto", path="/usr/sbin:/usr/bin") is None, reason="mosquitto is not installed")
async def test_hostile_nodes_cost_the_honest_ones_nothing(tmp_path: Path) -> None:
    """Every value of the honest nodes is exact, every XID pages in time, nothing ends or grows."""
    found = await run_campaign(tmp_path, seed(SEED), INPUTS)
    print("\n".join(found.lines()))
    assert not found.faults, "\n".join(found.faults)
    assert found.inputs == INPUTS
    assert found.pages
    assert found.values > 10_000


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_thousands_of_messages_change_nothing_of_what_a_twin_shows() -> None:
    """The targets run in processes of their own, whose findings come back: as `make fuzz` does with a million."""
    wanted = plan(shares_of(2 * PART, BUS))
    parts = list(run_in_parts(SEED, wanted, PART))
    faults = [fault for part in parts for fault in part.faults]
    assert not faults, "\n\n".join(faults)
    assert [part.inputs for part in parts] == [PART, len(wanted) - PART]
    assert all(part.audited > PART / 10 and part.compared > PART / 12.5 for part in parts), parts
