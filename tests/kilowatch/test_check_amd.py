"""`kilowatch check` and `kilowatch doctor` on a node of AMD: the real source on the fake driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aggregator.config import AggregatorConfig
from collector.amd import AmdSource
from collector.config import CollectorConfig
from kilowatch.check import checks
from kilowatch.check.checks import CheckDepth, check_node
from kilowatch.check.verdict import CheckReply, Verdict
from kilowatch.doctor.checks import driver, gpu_processes
from kilowatch.settings import Settings
from tests.fake_amd import FakeAmd


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAmd]:
    """Eight MI300X."""
    with FakeAmd(tmp_path, gpus=8) as made:
        yield made


async def checked(
    fake: FakeAmd, folder: Path, depth: CheckDepth = CheckDepth.USUAL, gpus: int | None = 8
) -> CheckReply:
    config = CollectorConfig(
        node="n1", source=f"amd:{fake.root}", state_dir=folder / "state", kernel_log="none", node_readings=False
    )
    source = AmdSource(fake.root, environment=fake.environment, open_wait=20.0)
    return await check_node(config, gpus, 60.0, source, depth)


def texts(reply: CheckReply, verdict: Verdict) -> str:
    return "; ".join(one.text for one in reply.results if one.verdict is verdict)


async def test_a_node_of_amd_without_a_fault_is_fit(fake: FakeAmd, tmp_path: Path) -> None:
    reply = await checked(fake, tmp_path)
    assert "8 GPUs answer, driver of Linux 6.14.0-test" in texts(reply, Verdict.FIT)
    assert "no fault in" in texts(reply, Verdict.FIT)
    assert not [one for one in reply.results if one.check.startswith("GPU") and one.verdict is not Verdict.FIT]


@pytest.mark.parametrize(
    ("fault", "verdict", "text"),
    [
        (lambda fake: fake.set(3, state="lost"), Verdict.UNFIT, "7 of 8 GPUs answer"),
        (lambda fake: fake.errors(2, "umc", ue=1), Verdict.DEGRADED, "uncorrected memory errors since the driver loaded"),
        (lambda fake: fake.file(2, "ras/gpu_vram_bad_pages", "0x1 : 0x1000 : P\n"), Verdict.DEGRADED, "a memory page waits to be retired"),
        (lambda fake: fake.table(1, temperature_hotspot=101), Verdict.UNFIT, "at the temperature at which it slows itself down"),
        (lambda fake: fake.unload(), Verdict.UNFIT, "modprobe amdgpu"),
    ],
)  # fmt: skip
async def test_each_fault_of_amds_gpus_is_a_verdict(
    fake: FakeAmd, tmp_path: Path, fault: Callable[[FakeAmd], None], verdict: Verdict, text: str
) -> None:
    fault(fake)
    reply = await checked(fake, tmp_path)
    assert text in texts(reply, verdict)
    assert reply.verdict is verdict


async def test_a_driver_that_is_gone_leaves_gpus_on_the_bus(
    fake: FakeAmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bus says how many GPUs there must be, where no setting does."""
    fake.unload()
    monkeypatch.setattr(checks, "gpus_on_the_bus", lambda _, vendors: 8 if vendors == ("0x1002",) else 0)
    reply = await checked(fake, tmp_path, gpus=None)
    assert reply.verdict is Verdict.UNFIT
    assert "modprobe amdgpu" in reply.reason


async def test_a_node_without_the_library_is_fit_by_its_files(tmp_path: Path) -> None:
    with FakeAmd(tmp_path, gpus=2, library=False) as fake:
        reply = await checked(fake, tmp_path, gpus=2)
        assert "2 GPUs answer" in texts(reply, Verdict.FIT)


async def test_nothing_is_measured_while_a_process_has_a_queue(fake: FakeAmd, tmp_path: Path) -> None:
    fake.process(4711, 5, 1 << 30)
    reply = await checked(fake, tmp_path, CheckDepth.FULL)
    assert "GPU 5 is in use (processes: 1)" in texts(reply, Verdict.UNKNOWN)
    assert reply.measured == {}


async def test_doctor_names_amds_driver_and_its_remedy(
    fake: FakeAmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    made = CollectorConfig(source=f"amd:{fake.root}", state_dir=tmp_path / "state", kernel_log="none")
    settings = Settings(collector=made, aggregator=AggregatorConfig())
    found = await driver(settings)
    assert (found.level, "8 GPUs answer" in found.text) == ("ok", True)
    fake.process(4711, 5, 1 << 30)
    assert "processes on the GPUs: 1" in (await gpu_processes(settings)).text
    fake.unload()
    found = await driver(settings)
    assert found.level == "fault"
    assert "modprobe amdgpu" in found.text
    assert "amd-smi list" in found.cure
