"""An exception in every function of the aggregator costs only its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.injected_runs import PARTS, RUN_PARTS, injected

pytestmark = [pytest.mark.systems, pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("part", RUN_PARTS)
async def test_a_fault_in_any_function_costs_only_its_own(tmp_path: Path, part: int) -> None:
    """Named by the impairments and an alert within five seconds, while the honest nodes' frames are
    stored and another fault is paged: lasting, and over at once."""
    run = await injected(tmp_path, r"aggregator\.", part, PARTS)
    run.assert_good()
