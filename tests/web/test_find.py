"""`/find` finds by names and numbers, best first, and shows persons only to those who may see them."""

from __future__ import annotations

from pathlib import Path

from aggregator.http.config import HttpConfig
from tests.aggregator.http_client import door
from tests.aggregator.test_http_alerts import hot
from tests.web.busy_lab import busy_lab
from tests.web.test_pages import EVIL, read


async def test_everything_that_has_a_name_is_found() -> None:
    async with door(await busy_lab()) as client:
        for wanted, link in {
            "N1": "nodes/n1",
            "gpu-n1-0": "gpus/GPU-n1-0",
            "n1 gpu 1": "gpus/GPU-n1-1",
            "lab/2": "circuits/lab%2F2",
            "4711": "jobs/4711",
            "ada": "jobs?user=ada",
            "gpu_lost": "runbook/gpu_lost",
        }.items():
            page = await read(client, f"/find?q={wanted.replace(' ', '+')}")
            assert any(one.startswith(link) for one in page.links), (wanted, page.links)
        nothing = await read(client, "/find?q=nosuch")
        assert "named 'nosuch'" in nothing.text
        assert "Name a node" in (await read(client, "/find")).text


async def test_an_open_incident_is_found_by_its_title(tmp_path: Path) -> None:
    async with hot(tmp_path) as client:
        (found,) = (await client.get("/api/v1/incidents"))["incidents"]
        page = await read(client.door, f"/find?q={found['title'][:12].replace(' ', '+')}")
        assert any(one.startswith("incidents/") for one in page.links)


async def test_persons_and_jobs_are_found_by_those_alone_who_may_see_them(tmp_path: Path) -> None:
    config = HttpConfig(listen="0.0.0.0:0", tokens_file=tmp_path / "t", anonymous_read=True)
    async with door(await busy_lab(), config) as client:
        stranger = await read(client, "/find?q=ada")
        assert "user=ada" not in str(stranger.links)
        assert "Nothing that is heard" in stranger.text
        known = await read(client, "/find?q=ada", client.bearer)
        assert "user=ada" in str(known.links)


async def test_what_is_looked_for_is_text() -> None:
    async with door(await busy_lab()) as client:
        page = await read(client, "/find?q=%3Cscript%3Ealert(1)%3C/script%3E")
        assert "<script>alert(1)</script>" in page.text
        assert EVIL not in page.links
