"""The runbook page that an alert leads to, and the web page of what is chosen."""

from __future__ import annotations

import pytest

from api.alerts import Alert
from tui.screens.actions import page_url, runbook_url


@pytest.mark.parametrize(
    ("aggregator", "runbook", "url"),
    [
        ("http://127.0.0.1:9400", "gpu-lost", "http://127.0.0.1:9400/runbook/gpu_lost"),
        ("https://ops:secret@kw.example/lab/", "gpu-lost", "https://kw.example/lab/runbook/gpu_lost"),
        ("http://[::1]:9400", "https://wiki.example/gpu", "https://wiki.example/gpu"),
    ],
)
def test_a_runbook_is_a_page_of_the_aggregator(aggregator: str, runbook: str, url: str) -> None:
    alert = Alert("k", "gpu_lost", "firing", "page", "dgx-01", runbook=runbook)
    assert runbook_url(aggregator, alert) == url


@pytest.mark.parametrize(
    ("aggregator", "chosen", "url"),
    [("http://127.0.0.1:9400", None, "http://127.0.0.1:9400/"),
     ("http://127.0.0.1:9400", ("alert", "gpu_lost/dgx-01"), "http://127.0.0.1:9400/"),
     ("http://127.0.0.1:9400", ("gpu", "GPU-1"), "http://127.0.0.1:9400/gpus/GPU-1"),
     ("https://ops:secret@kw.example/lab/", ("circuit", "living room"), "https://kw.example/lab/circuits/living%20room")],
)  # fmt: skip
def test_what_is_chosen_has_a_page_that_can_be_copied(
    aggregator: str, chosen: tuple[str, str] | None, url: str
) -> None:
    assert page_url(aggregator, chosen) == url
