"""Files that are damaged, or something else: each error says where, what, and what to do."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.smi.document import Document
from collector.smi.failure import Failure
from collector.smi.file import documents_of, load
from collector.smi.file_source import SmiFileSource
from collector.smi.inventory import inventory_of
from collector.smi.readings import readings_of
from telemetry.errors import KilowattError, SourceError
from telemetry.gap import Gap, reason_of
from telemetry.metric import Lane
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, SCHEMA
from tests.collector.smi_logs import FILES, logs, needs_captures
from tests.collector.test_smi_layouts import NEW_TEXT, OLD_TEXT, XML

BOTH = frozenset(Lane)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0", "a binary file"),
        (b"\x1f\x8b\x08garbage", "damaged gzip file"),
        (b"hello\n", "no output of `nvidia-smi -q` in it. Save one with"),
        (b"| NVIDIA-SMI 550.1    Driver Version: 550.1 |\n", "the table of a bare `nvidia-smi`"),
        (b"GPU 0: NVIDIA A40 (UUID: GPU-1)\n", "looks like `nvidia-smi -L`"),
        (b"index, name, power.draw [W]\n0, A40, 30 W\n", "looks like CSV"),
        (b'{"gpus": []}\n', "looks like JSON"),
        (b"<!DOCTYPE html>\n<html>", "looks like a web page"),
        (b"<?xml version='1.0'?>\n<svg/>", "looks like XML of something else"),
        (b"[1.0] NVRM: loading NVIDIA UNIX\n", "looks like a kernel log"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_log_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    """The message begins with the path, and ends with a command that mends it."""
    path = tmp_path / "bundle"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


def test_a_path_that_is_no_file_is_named(tmp_path: Path) -> None:
    """Missing, and a directory."""
    with pytest.raises(SourceError, match=r"nowhere: no such file. Save one with `nvidia-smi -q"):
        load(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="a directory"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "state", "cure"),
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
            "sure that the latest NVIDIA driver is installed and running.\n",
            "missing",
            "modprobe nvidia",
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.133\n",
            "mismatched",
            "Reboot",
        ),
        ("Failed to initialize NVML: Insufficient Permissions\n", "no_permission", "group"),
        ("Failed to initialize NVML: Unknown Error\n", "missing", "container"),
        ("No devices were found\n", "up", "lspci"),
    ],
    ids=["no driver", "mismatch", "permission", "container", "no GPU"],
)
async def test_an_error_of_nvidia_smi_instead_of_a_log_is_the_drivers_state(
    tmp_path: Path, text: str, state: str, cure: str
) -> None:
    """A saved failure is a valid file: no GPUs, and why."""
    path = tmp_path / "saved.txt"
    path.write_text(text)
    source = SmiFileSource(path)
    await source.open()
    assert source.inventory.driver_state == state
    assert cure in source.inventory.driver_message
    assert source.inventory.gpus == ()
    rows = await source.read(BOTH, 0, 0, 1.0)
    assert rows[GPU_FAST] == rows[GPU_SLOW] == []


@pytest.mark.parametrize(
    "encoded",
    [
        XML.encode("utf-8-sig"),
        "\ufeff".encode("utf-16-le") + XML.encode("utf-16-le"),
        "\ufeff".encode("utf-16-be") + XML.encode("utf-16-be"),
        XML.replace("\n", "\r\n").encode(),
        gzip.compress(XML.encode()),
        b"some words of a support bundle\n" + XML.encode(),
    ],
    ids=["bom", "powershell", "utf-16-be", "crlf", "gzip", "bundle"],
)
def test_forms_in_which_people_keep_files(tmp_path: Path, encoded: bytes) -> None:
    """Each form gives the same readings."""
    path = tmp_path / "log"
    path.write_bytes(encoded)
    (document,) = logs(load(path))
    assert readings_of(document)[0]["gpu_temperature_celsius"] == 41.0
    assert inventory_of(document).driver_message == ""


def test_a_text_log_is_found_in_windows_lines_and_indented() -> None:
    """As pasted into an issue."""
    indented = "".join(f"    {line}\n" for line in OLD_TEXT.splitlines())
    for text in (OLD_TEXT.replace("\n", "\r\n"), indented):
        (document,) = logs(documents_of(text.replace("\r\n", "\n"), "test"))
        assert readings_of(document)[0]["gpu_power_watts"] == 30.23
        assert document.facts["driver_version"] == "304.54"


async def test_a_log_that_is_cut_off_is_read_up_to_there_and_noted(tmp_path: Path) -> None:
    """Two of three GPUs are whole; of the third, what stands there is right and the rest error."""
    gpu = XML[XML.index("  <gpu") : XML.index("  <driver_version")]
    text = XML.replace(gpu, gpu + gpu.replace("GPU-1", "GPU-2") + gpu.replace("GPU-1", "GPU-3"))
    text = "<attached_gpus>3</attached_gpus>".join(text.partition("<nvidia_smi_log>")[::2])
    text = "<nvidia_smi_log>" + text[: text.rindex("<sram_correctable>1") + 19]
    path = tmp_path / "cut.xml"
    path.write_text(text)
    source = SmiFileSource(path)
    await source.open()
    assert source.inventory.driver_message == (
        "the log is cut off in the middle of GPU 00000000:18:00.0: 3 of 3 GPUs are here"
    )
    assert [document.complete for document in source.documents[0].gpus] == [True, True, False]
    last = readings_of(source.documents[0])[2]
    assert last["gpu_temperature_celsius"] == 41.0
    for name in ("gpu_ecc_volatile_corrected_sram_total", "gpu_power_limit_watts"):
        reason = reason_of(last[name])
        assert reason is not None
        assert reason.word == "error"


async def test_the_source_plays_its_logs_and_stays_on_the_last(tmp_path: Path) -> None:
    """Each log is a tick; a changed inventory is replaced before the rows that need it."""
    second = NEW_TEXT + "GPU 00000009:02:00.0\n    Product Name : x\n    Processes : None\n"
    path = tmp_path / "logs.txt"
    path.write_text(NEW_TEXT + second)
    source = SmiFileSource(path)
    await source.open()
    assert source.inventory.source == "nvidia-smi:logs.txt"
    sizes = []
    for tick in range(3):
        rows = await source.read(BOTH, tick, 0, 1.0)
        assert len(rows[GPU_FAST]) == len(rows[GPU_SLOW]) == len(source.inventory.gpus)
        assert {len(row) for row in rows[GPU_FAST]} == {len(SCHEMA.blocks[GPU_FAST].names)}
        sizes.append(len(source.inventory.gpus))
    assert sizes == [1, 2, 2]
    assert source.drain_events() == []
    await source.close()
    assert await source.read(frozenset({Lane.FAST}), 9, 0, 1.0) == {}


@given(st.binary(max_size=400), st.sampled_from([XML, OLD_TEXT, NEW_TEXT]), st.integers(0, 4000))
def test_no_bytes_raise_anything_but_our_error(noise: bytes, text: str, at: int) -> None:
    """Noise alone, and noise in the middle of a log."""
    middle = text[:at].encode() + noise + text[at:].encode()
    for data in (noise, middle):
        try:
            found = documents_of(data.decode(errors="replace"), "test")
        except KilowattError:
            continue
        if not isinstance(found, Failure):
            for document in found:
                assert len(readings_of(document)) == len(inventory_of(document).gpus)


def _gpus(documents: list[Document]) -> dict[tuple[int, int], tuple[bool, dict[str, float]]]:
    return {
        (log, number): (gpu.complete, values)
        for log, document in enumerate(documents)
        for number, (gpu, values) in enumerate(zip(document.gpus, readings_of(document), strict=True))
    }


@needs_captures
@pytest.mark.captures
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_cut_makes_a_wrong_number(path: Path) -> None:
    """Whole GPUs read as before; of the one that is cut, every number is a true one."""
    text = path.read_text()
    whole = _gpus(logs(documents_of(text, "whole")))
    picks = random.Random(len(text))
    for at in [picks.randrange(len(text)) for _ in range(25)]:
        try:
            found = documents_of(text[:at], "cut")
        except SourceError:
            continue
        for place, (complete, values) in _gpus(logs(found)).items():
            for name, value in values.items():
                true = whole[place][1][name]
                if reason_of(value) is None:
                    assert value == true, (at, name)
                elif complete and path.suffix == ".xml":
                    assert reason_of(true) == reason_of(value), (at, name)


@pytest.mark.parametrize(
    ("line", "pci"),
    [
        ("GPU 0000:34:00.0: Unknown Error", "0000:34:00.0"),
        ("GPU1: 0000:34:00.0: Unknown Error", "0000:34:00.0"),
        ("GPU 00000000:34:00.0: GPU is lost. Reboot the system", "0000:34:00.0"),
        ("GPU0: Unknown Error", None),
    ],
)
def test_a_gpu_that_can_not_be_opened_is_lost_whatever_the_words(line: str, pci: str | None) -> None:
    """Its row is all gaps, beside the GPUs that answer."""
    text = f"Unable to determine the device handle for {line}\nNo devices were found\n"
    found = documents_of(text, "x")
    assert isinstance(found, list)
    (gpu,) = inventory_of(found[0], "nvidia-smi").gpus
    assert (gpu.present, gpu.pci) == (False, pci)
    (readings,) = readings_of(found[0])
    assert {reason_of(value) for value in readings.values()} == {Gap.DEVICE_LOST}
