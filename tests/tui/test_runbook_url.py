"""The runbook page that an alert leads to."""

from __future__ import annotations

import pytest

from api.alerts import Alert
from tui.screens.actions import runbook_url


@pytest.mark.parametrize(
    ("aggregator", "runbook", "url"),
    [("http://127.0.0.1:9400", "gpu-lost", "http://127.0.0.1:9400/runbook/gpu_lost"),
     ("https://ops:secret@kw.example/lab/", "gpu-lost", "https://kw.example/lab/runbook/gpu_lost"),
     ("http://[::1]:9400", "https://wiki.example/gpu", "https://wiki.example/gpu")],
)  # fmt: skip
def test_a_runbook_is_a_page_of_the_aggregator(aggregator: str, runbook: str, url: str) -> None:
    alert = Alert("k", "gpu_lost", "firing", "page", "dgx-01", runbook=runbook)
    assert runbook_url(aggregator, alert) == url
