"""`kilowatch check --full`: what is measured on a node that nobody uses, and where the results are kept.

Nothing needs root, and nothing that runs is disturbed: a node with a process on a GPU is refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from collector.commands.once import NodeReading
from collector.host.check_results import FILE, KeptCheck
from collector.sources import is_amd
from kilowatch.check.gpu_bench import NEEDS
from kilowatch.check.verdict import CheckReply, CheckResult, Verdict
from present.units import rate_text
from telemetry.files import private_file
from telemetry.gap import reason_of
from telemetry.metric import Table
from telemetry.text import counted
from telemetry.wire.schema import SCHEMA

SECONDS = 0.5
"""For which the memory is copied."""
BUFFER = 64 * 2**20
"""Bytes of each of a thread's two buffers: more than any cache."""
MOST_THREADS = 16
MOST_LOAD = 0.5
"""Load of the CPUs above which a measurement would be of them."""
GPU_SECONDS = 90.0
"""For which the GPUs may take; the program is then left to itself, for a process in a driver call is not killed."""
DIAG_SECONDS = 300.0
_PROGRAM = (sys.executable, "-m", "kilowatch.check.gpu_bench")


def in_use(reading: NodeReading) -> str:
    """Return why nothing may be run on this node; "" where nobody uses a GPU."""
    for row, gpu in enumerate(reading.inventory.gpus):
        if not gpu.present:
            continue
        count = _values(reading, Table.GPU, row).get("gpu_processes", math.nan)
        if count > 0:
            return f"GPU {gpu.index} is in use (processes: {count:.0f})"
        if math.isnan(count):
            reason = reason_of(count)
            word = "not read" if reason is None else reason.word.replace("_", " ")
            return f"whether GPU {gpu.index} is in use is not known: {word}"
    node = _values(reading, Table.NODE, 0)
    load, cpus = node.get("node_load_1m", math.nan), node.get("node_cpus", math.nan)
    if load > MOST_LOAD * cpus > 0:
        return f"the CPUs are busy: a load of {load:.1f} on {cpus:.0f}"
    return ""


def _values(reading: NodeReading, table: Table, row: int) -> dict[str, float]:
    return {
        name: rows[row][column]
        for number, block in enumerate(SCHEMA.blocks)
        if block.table is table and (rows := reading.rows.get(number))
        for column, name in enumerate(block.names)
    }


def memory_bandwidth(seconds: float = SECONDS, threads: int | None = None) -> float:
    """Return the bytes a second that all CPUs together read and write while they copy. ctypes lets go of the
    interpreter while it copies."""
    count = threads or min(MOST_THREADS, len(os.sched_getaffinity(0)))
    copied = [0] * count
    begin = threading.Barrier(count + 1)
    end = threading.Event()

    def work(number: int) -> None:
        source, target = ctypes.create_string_buffer(BUFFER), ctypes.create_string_buffer(BUFFER)
        ctypes.memset(source, 1, BUFFER)
        ctypes.memmove(target, source, BUFFER)  # so that the pages are there
        begin.wait()
        while not end.is_set():
            ctypes.memmove(target, source, BUFFER)
            copied[number] += 2 * BUFFER

    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for worker in workers:
        worker.start()
    begin.wait()
    began = time.perf_counter()
    end.wait(seconds)
    end.set()
    for worker in workers:
        worker.join()
    return sum(copied) / (time.perf_counter() - began)


def measured(
    reading: NodeReading, program: tuple[str, ...] | None = None, seconds: float = GPU_SECONDS
) -> tuple[list[CheckResult], dict[str, float]]:
    """Measure this node; return the results, and the values by name."""
    why = in_use(reading)
    if why:
        text = f"nothing was run: {why}"
        return [CheckResult(check="full", verdict=Verdict.UNKNOWN, text=text, action="Drain the node first.")], {}
    found = {"memory bandwidth": memory_bandwidth()}
    problems: dict[str, str] = {}
    present = [gpu for gpu in reading.inventory.gpus if gpu.present]
    if present:
        libraries = {"hip" if is_amd(gpu) else "cuda" for gpu in present}
        answer = _of_gpus(program or (*_PROGRAM, *sorted(libraries)), seconds)
        found |= answer["found"]
        problems |= answer["problems"]
    results = [
        CheckResult(check="full", verdict=Verdict.FIT, text=f"{name}: {rate_text(name, value)}")
        for name, value in found.items()
    ]
    results += [
        CheckResult(
            check="full",
            verdict=Verdict.LEFT_OUT if why == NEEDS else Verdict.UNKNOWN,
            text=f"{name}: not known: {why}",
        )
        for name, why in problems.items()
    ]
    return [*results, *_diagnosed()], found


def _of_gpus(program: tuple[str, ...], seconds: float) -> dict[str, dict[str, Any]]:
    child = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        threading.Thread(target=child.communicate, daemon=True).start()  # it ends when its call returns
        return {
            "found": {},
            "problems": {
                "gpu bandwidth": f"it did not end within {seconds:.0f} s, and was left alone (PID {child.pid})"
            },
        }
    with contextlib.suppress(ValueError):
        answer = json.loads(out)
        if isinstance(answer, dict) and {"found", "problems"} <= answer.keys():
            return answer
    last = (errors.strip().splitlines() or [f"it ended with {child.returncode}"])[-1]
    return {"found": {}, "problems": {"gpu bandwidth": last[:200]}}


def _diagnosed() -> Iterator[CheckResult]:
    """Run the short diagnosis of DCGM, where it is installed."""
    command = shutil.which("dcgmi")
    if command is None:
        yield CheckResult(check="dcgmi", verdict=Verdict.LEFT_OUT, text="dcgmi is not installed")
        return
    try:
        done = subprocess.run(
            (command, "diag", "-r", "1", "-j"), capture_output=True, text=True, timeout=DIAG_SECONDS, check=False
        )
        words = list(_statuses(json.loads(done.stdout)))
    except subprocess.TimeoutExpired:
        yield CheckResult(
            check="dcgmi", verdict=Verdict.UNKNOWN, text=f"dcgmi diag did not end within {DIAG_SECONDS:.0f} s"
        )
        return
    except ValueError:
        text = (done.stdout or done.stderr).strip().splitlines()
        yield CheckResult(
            check="dcgmi", verdict=Verdict.UNKNOWN, text=f"dcgmi diag: {(text or ['no answer'])[0][:200]}"
        )
        return
    failed = [name for name, word in words if word == "fail"]
    warned = [name for name, word in words if word == "warn"]
    passed = sum(word == "pass" for _, word in words)
    if failed:
        yield CheckResult(check="dcgmi", verdict=Verdict.UNFIT, text=f"failed: {', '.join(dict.fromkeys(failed))}")
    elif warned:
        yield CheckResult(check="dcgmi", verdict=Verdict.DEGRADED, text=f"warned: {', '.join(dict.fromkeys(warned))}")
    elif passed:
        yield CheckResult(check="dcgmi", verdict=Verdict.FIT, text=f"{counted(passed, 'test')} passed")
    else:
        yield CheckResult(check="dcgmi", verdict=Verdict.UNKNOWN, text="dcgmi diag ran no test")


def _statuses(tree: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each test of the document with its status, however deep it lies."""
    if isinstance(tree, list):
        for each in tree:
            yield from _statuses(each, name)
    elif isinstance(tree, dict):
        name = str(tree.get("name", name))
        if isinstance(tree.get("status"), str):
            yield name, tree["status"].lower()
        for each in tree.values():
            yield from _statuses(each, name)


def keep(folder: Path, reply: CheckReply, values: Mapping[str, float]) -> str:
    """Keep the results where the collector of this node finds them; return why that failed, "" else."""
    body = msgspec.json.encode(
        KeptCheck(at=reply.at, verdict=str(reply.verdict), reason=reply.reason, measured=dict(values))
    )
    try:
        private_file.make_folder(folder)
        owner = folder.stat()
        descriptor = private_file.write(folder / FILE, body.decode())
        with contextlib.suppress(PermissionError):  # a check as root, a collector that is not
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        os.close(descriptor)
    except OSError as error:
        return f"{folder / FILE} can't be written: {error.strerror}"
    return ""
