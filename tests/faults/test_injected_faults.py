"""The injection of exceptions itself: its tables are small and true, and it finds what is swallowed.

Which functions there are is found by running the scene; none may be left out without a reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.injected_faults import PACKAGES, always, inject
from tests.faults.injected_outcomes import EXEMPT, MOST_WHOLE, UNRAISED, WHOLE
from tests.faults.injected_runs import acceptable, quiet, reason_of, run_functions
from tests.faults.injection import functions
from tests.faults.injection_scene import Scene


async def test_few_functions_may_stop_everything(tmp_path: Path) -> None:
    """Such functions are named one by one with the reason; each pattern still fits a function."""
    names = await run_functions(tmp_path)
    whole = [name for name in names if reason_of(WHOLE, name) is not None]
    assert len(whole) <= MOST_WHOLE < len(names) / 10, "\n".join(whole)
    every = {name for name, _ in functions(PACKAGES).values()}
    for pattern in (*WHOLE, *EXEMPT, *UNRAISED):
        assert any(re.fullmatch(pattern, name) for name in every), f"{pattern} fits no function"


async def test_the_injection_finds_a_fault_that_is_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An injected fault that nobody reports is found wrong: the test can fail."""
    by_name = dict(functions(PACKAGES).values())
    name = "aggregator.alerting.pipeline.AlertPipeline.notified"
    with quiet():
        async with Scene(tmp_path).running() as scene:
            await scene.second()
            monkeypatch.setattr(scene.aggregator.impairments, "report", lambda *_, **__: None)
            result = await inject(scene, name, by_name[name], always, 1, once=False)
        assert result.raised
        assert not result.named
        assert not acceptable(result, whole=False)
