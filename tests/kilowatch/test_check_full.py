"""`kilowatch check --full`: what is measured, refused, kept and compared with the fleet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from aggregator.register.drift import compared, drift_of
from collector.commands.once import NodeReading
from collector.config import CollectorConfig
from collector.host.check_results import CheckResults
from kilowatch.__main__ import main
from kilowatch.check.checks import CheckDepth, check_node
from kilowatch.check.gpu_bench import NEEDS
from kilowatch.check.measurements import in_use, keep, measured, memory_bandwidth
from kilowatch.check.verdict import CheckReply, Verdict
from telemetry.gap import NO_PERMISSION
from tests.aggregator.test_drift import dgx, host
from tests.fakes import FakeSource
from tests.kilowatch.test_check import Node

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `libcuda.so.1` of our own: no machine of the tests has a GPU."""
    made = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, HERE / "fake_cuda.c"], check=True)
    return made


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `libamdhip64.so.7` of our own."""
    made = tmp_path_factory.mktemp("hip") / "libamdhip64.so.7"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, HERE / "fake_hip.c"], check=True)
    return made


@pytest.fixture(autouse=True)
def no_dcgm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder of programs without dcgmi, and two GPUs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("FAKE_CUDA_GPUS", "2")
    monkeypatch.setattr("kilowatch.check.measurements.SECONDS", 0.05)
    monkeypatch.setattr(memory_bandwidth, "__defaults__", (0.05, 1))
    return programs


def used(gpus: int, processes: float) -> NodeReading:
    """A reading of a node whose first GPU has processes."""
    node = Node(gpus)
    node.set("gpu_processes", processes)
    return node.reading


def program(*libraries: Path | str) -> tuple[str, ...]:
    return (sys.executable, "-m", "kilowatch.check.gpu_bench", *map(str, libraries))


def test_memory_is_copied_by_all_threads() -> None:
    assert memory_bandwidth(0.05, 2) > 1e8


def test_gpus_are_measured_by_the_drivers_own_library(cuda: Path) -> None:
    results, values = measured(used(2, 0.0), program(cuda))
    assert set(values) >= {"memory bandwidth", "to gpu bandwidth", "from gpu bandwidth", "gpu to gpu bandwidth"}
    assert all(value > 0 for value in values.values())
    words = {one.text.partition(":")[0]: one.verdict for one in results}
    assert words["to gpu bandwidth"] is Verdict.FIT
    texts = [one.text for one in results if one.verdict is Verdict.LEFT_OUT]
    assert "dcgmi is not installed" in texts
    if "gemm" not in values:
        assert f"gemm: not known: {NEEDS}" in texts


def test_gpus_of_amd_are_measured_by_their_runtime_and_both_makers_together(
    cuda: Path, hip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"to gpu bandwidth", "from gpu bandwidth", "gpu to gpu bandwidth"}
    assert set(measured(used(2, 0.0), program(hip))[1]) >= names
    assert set(measured(used(2, 0.0), program(cuda, hip))[1]) >= names
    monkeypatch.setenv("FAKE_HIP_FAIL", "hipMemcpy")
    results, values = measured(used(2, 0.0), program(hip))
    assert names.isdisjoint(values)
    assert "gpu bandwidth: not known: hipMemcpy failed with 999" in [one.text for one in results]


def test_the_library_that_is_asked_is_that_of_the_makers_of_the_gpus() -> None:
    """Neither is on a machine of the tests; the complaint names the one that was tried."""
    reading = used(1, 0.0)
    (gpu,) = reading.inventory.gpus
    for name, library in (("AMD Instinct MI300X", "libamdhip64.so"), ("NVIDIA H100", "libcuda.so.1")):
        inventory = msgspec.structs.replace(reading.inventory, gpus=(msgspec.structs.replace(gpu, name=name),))
        results, values = measured(reading._replace(inventory=inventory))
        assert "to gpu bandwidth" not in values
        assert any(f"{library}" in one.text and "can't be loaded" in one.text for one in results)


def test_one_gpu_has_no_other(cuda: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_GPUS", "1")
    _, values = measured(used(1, 0.0), program(cuda))
    assert "gpu to gpu bandwidth" not in values
    assert "to gpu bandwidth" in values


@pytest.mark.parametrize("call", ["cuInit", "cuMemAlloc_v2", "cuMemcpyHtoD_v2"])
def test_a_call_that_fails_is_not_known_and_no_crash(call: str, cuda: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAIL", call)
    results, values = measured(used(2, 0.0), program(cuda))
    assert "to gpu bandwidth" not in values
    (failed,) = [one for one in results if one.text.startswith("gpu bandwidth")]
    assert (failed.verdict, failed.text) == (Verdict.UNKNOWN, f"gpu bandwidth: not known: {call} failed with 999")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (program("/no/such/libcuda.so.1"), "can't be loaded"),
        ((sys.executable, "-c", "import sys; sys.exit('it broke')"), "it broke"),
        ((sys.executable, "-c", "print('nonsense')"), "ended with 0"),
        ((sys.executable, "-c", "import time; time.sleep(1.5)"), "did not end within"),
    ],
)
def test_a_program_that_does_not_answer_is_not_known(command: tuple[str, ...], text: str) -> None:
    hangs = "did not end" in text
    results, _ = measured(used(2, 0.0), command, 0.2 if hangs else 60.0)
    assert any(one.verdict is Verdict.UNKNOWN and text in one.text for one in results)


def test_a_gpu_in_use_and_one_that_may_be_are_refused() -> None:
    assert in_use(used(2, 0.0)) == ""
    busy = used(2, 3.0)
    assert in_use(busy) == "GPU 0 is in use (processes: 3)"
    (one,), values = measured(busy, ("/no/such/program",))
    assert (one.verdict, values) == (Verdict.UNKNOWN, {})
    assert one.text.startswith("nothing was run")
    node = Node(0)
    node.set("node_cpus", 2.0)
    node.set("node_load_1m", 1.0)
    assert in_use(node.reading) == ""
    node.set("node_load_1m", 9.5)
    assert in_use(node.reading) == "the CPUs are busy: a load of 9.5 on 2"
    hidden = used(2, NO_PERMISSION)
    assert in_use(hidden) == "whether GPU 0 is in use is not known: no permission"


@pytest.mark.parametrize(
    ("answer", "verdict", "text"),
    [
        ({"tests": [{"name": "Memory", "results": [{"status": "Pass"}]}, {"name": "PCIe", "results": [{"status": "Fail"}]}]}, Verdict.UNFIT, "failed: PCIe"),
        ({"tests": [{"name": "Memory", "results": [{"status": "Pass"}, {"status": "Warn"}]}]}, Verdict.DEGRADED, "warned: Memory"),
        ({"DCGM GPU Diagnostic": {"test_categories": [{"tests": [{"name": "Software", "results": [{"status": "PASS"}]}]}]}}, Verdict.FIT, "1 test passed"),
        ({"tests": [{"name": "Memory", "results": [{"status": "Skip"}]}]}, Verdict.UNKNOWN, "ran no test"),
        ("Error: unable to connect", Verdict.UNKNOWN, "Error: unable to connect"),
    ],
)  # fmt: skip
def test_the_diagnosis_of_dcgm_counts(answer: object, verdict: Verdict, text: str, no_dcgm: Path) -> None:
    command, said = no_dcgm / "dcgmi", no_dcgm / "said"
    said.write_text(answer if isinstance(answer, str) else json.dumps(answer))
    command.write_text(f"#!{sys.executable}\nprint(open({str(said)!r}).read())\n")
    command.chmod(0o755)
    results, _ = measured(Node(0).reading)
    (one,) = [each for each in results if each.check == "dcgmi"]
    assert one.verdict is verdict
    assert text in one.text


async def test_full_and_quick_are_two_depths_of_one_check(tmp_path: Path) -> None:
    config = CollectorConfig(source="none", node="n1", state_dir=tmp_path, kernel_log="none")
    full = await check_node(config, None, 60.0, FakeSource(), CheckDepth.FULL)
    assert full.measured == {} or full.measured["memory bandwidth"] > 0
    quick = await check_node(config, None, 60.0, FakeSource(), CheckDepth.QUICK)
    assert quick.measured == {}
    assert not any(one.check == "full" for one in quick.results)


def test_the_collector_makes_facts_and_an_event_of_the_results(tmp_path: Path) -> None:
    checks = CheckResults(tmp_path)
    assert checks.facts() == {}
    reply = CheckReply(node="n", verdict=Verdict.FIT, reason="", at=7, seconds=1.0, results=[])
    assert keep(tmp_path, reply, {"memory bandwidth": 182.4e9}) == ""
    assert (tmp_path / "check.json").stat().st_mode & 0o777 == 0o600
    assert checks.facts() == {"measured:memory bandwidth": "1.824e+11"}
    assert checks.facts() == {"measured:memory bandwidth": "1.824e+11"}
    (event,) = checks.drain_events()
    assert (event.kind, event.at, event.data["measured"]) == ("check", 7, {"memory bandwidth": 182.4e9})
    again = CheckResults(tmp_path)
    assert again.facts() != {}
    assert again.drain_events() == [], "that of before its start is stored already"
    (tmp_path / "check.json").write_text("{")
    assert again.facts() == {}
    (tmp_path / "file").write_text("")
    assert "can't be written" in keep(tmp_path / "file", reply, {})


def test_a_node_that_measured_less_than_its_like_differs() -> None:
    def measured_as(number: int, rate: float | None) -> object:
        facts = {} if rate is None else {"measured:memory bandwidth": str(rate)}
        return compared(host(**facts)(dgx(number)))

    rates = [200e9, 198e9, 205e9, 160e9, 201e9, 190e9, None]
    (group,) = drift_of([measured_as(n, rate) for n, rate in enumerate(rates)], 0).groups  # type: ignore[misc]
    assert [(one.node, one.fact, one.has, one.most_have, one.nodes, one.of) for one in group.deviations] == [
        ("dgx-003", "measured memory bandwidth", "160 GB/s", "199 GB/s (median)", 5, 6)
    ]
    few = [measured_as(n, rate) for n, rate in enumerate([200e9, 200e9, 200e9, 20e9, None, None])]
    assert drift_of(few, 0).groups[0].deviations == []  # type: ignore[arg-type]


def test_options_that_exclude_each_other_are_refused() -> None:
    run = CliRunner().invoke(main, ["check", "--quick", "--full"])
    assert run.exit_code == 64
    elsewhere = CliRunner().invoke(main, ["check", "--full", "--source", "simulated:two-dgx-h100"])
    assert elsewhere.exit_code == 64
    assert "is not this machine" in elsewhere.output
    assert msgspec.json.decode(CliRunner().invoke(main, ["check", "--quick", "--source", "simulated:two-dgx-h100", "--json"]).output)["measured"] == {}  # fmt: skip
