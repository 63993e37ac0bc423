"""The live command `nvidia-smi -q -x` as a source, for nodes where NVML can't be loaded.

Each run opens the driver again and takes a second or more on a large node, so this source has a
longer interval of its own (10 s by default) and never runs twice at once. Between two runs it
returns no rows: an old reading is not sent again as a new one. A run that hangs is abandoned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO

import msgspec

from collector.smi.document import Document
from collector.smi.failure import Failure, failure_of
from collector.smi.file import documents_of
from collector.smi.inventory import NAMELESS, inventory_of
from collector.smi.readings import rows_of
from collector.source import DeviceEvent, Rows
from telemetry.devices import Gpu
from telemetry.errors import ConfigError, SourceError
from telemetry.gap import DEVICE_LOST, ERROR, TIMED_OUT
from telemetry.metric import Lane, Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA

# One run of nvidia-smi, which may hang in the driver and then can't be killed.
#
# A process inside a driver call gets SIGTERM and is abandoned: SIGKILL in the middle of a call has
# frozen GPUs. Output goes to unnamed files, not to pipes, so that neither side waits for the other.

MAX_OUTPUT = 64 * 1024 * 1024


class SmiRun:
    """Process in a session of its own, with its output in unnamed files. Raises `OSError`."""

    def __init__(self, command: Sequence[str], started: float) -> None:
        self.started = started
        """Monotonic seconds of the caller."""
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives with the process
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._errors,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except BaseException:
            self._close_files()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def over(self) -> bool:
        """Return whether the process has ended."""
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        """Exit code, None while it runs."""
        return self._process.returncode

    def texts(self) -> tuple[str, str]:
        """Return its standard output and standard error."""
        texts = []
        for file in (self._output, self._errors):
            file.seek(0)
            texts.append(file.read(MAX_OUTPUT).decode("utf-8", errors="replace"))
        return texts[0], texts[1]

    def terminate(self) -> None:
        """Send SIGTERM, never SIGKILL."""
        if not self.over():
            with contextlib.suppress(OSError):
                self._process.terminate()

    def forget(self) -> None:
        """Close the files, whether the process has ended or not."""
        if not self.over():
            # Else Python would warn of a child that is never waited for.
            self._process.returncode = -1
        self._close_files()

    def _close_files(self) -> None:
        self._output.close()
        self._errors.close()


# Changes between two inventories, as events.


def inventory_events(old: Inventory, new: Inventory, at: int) -> list[DeviceEvent]:
    """Return events for operators; `at` is ns since 1970."""
    events: list[DeviceEvent] = []
    if old.driver_state not in {"unknown", new.driver_state}:
        if new.driver_state == "up":
            events.append(DeviceEvent("driver_up", at, message="the driver answers again"))
        elif old.driver_state == "up":
            events.append(DeviceEvent("driver_down", at, message=new.driver_message, data={"state": new.driver_state}))
    if old.driver_version and new.driver_version and old.driver_version != new.driver_version:
        events.append(
            DeviceEvent(
                "driver_reloaded",
                at,
                message=f"driver {old.driver_version} became {new.driver_version}",
                data={"from": old.driver_version, "to": new.driver_version},
            )
        )
    before = {gpu.uuid: gpu for gpu in old.gpus}
    for gpu in new.gpus:
        was = before.get(gpu.uuid)
        if was is not None and was.present and not gpu.present:
            events.append(DeviceEvent("gpu_lost", at, gpu.uuid, gpu.pci, f"GPU {gpu.index} is gone"))
        elif was is not None and not was.present and gpu.present:
            events.append(DeviceEvent("gpu_back", at, gpu.uuid, gpu.pci, f"GPU {gpu.index} is back"))
        if was is not None and was.mig != gpu.mig:
            mode = "on" if gpu.mig else "off"
            events.append(DeviceEvent("mig_changed", at, gpu.uuid, gpu.pci, f"MIG mode is {mode}", {"mig": gpu.mig}))
    return events


log = logging.getLogger(__name__)

MIN_INTERVAL = 5.0
MAX_ABANDONED = 3
"""Abandoned runs at which no further run is started."""
_OPEN_TIMEOUT = 5.0
_POLL = 0.02
_LANES = frozenset(Lane)
_SOURCE = "nvidia-smi"


class SmiCommandSource:
    """Source `nvidia-smi`. Times are in seconds; `clock` is monotonic."""

    def __init__(
        self,
        interval: float = 10.0,
        command: str | Sequence[str] = "nvidia-smi",
        timeout: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not interval >= MIN_INTERVAL:
            raise ConfigError(
                "source.interval",
                f"every {interval:g} s is too often for nvidia-smi: each run opens the driver again",
                f"Write {MIN_INTERVAL:g} or more, or use the source 'nvml'.",
            )
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if not words:
            raise ConfigError("source.command", "empty", "Write the path of nvidia-smi.")
        self.interval = interval
        """Seconds between two runs; the collector ticks no faster."""
        self.command = (*words, "-q", "-x")
        self.timeout = timeout
        self.inventory = Inventory(node="", source=_SOURCE)
        self._clock = clock
        self._run: SmiRun | None = None
        self._abandoned: list[SmiRun] = []
        self.abandoned = 0
        """Runs abandoned as hung since the start."""
        self._due = 0.0
        self._released = False
        self._found: list[Document] | Failure | None = None
        self._events: list[DeviceEvent] = []
        self._gap = ERROR

    async def open(self) -> None:
        """Run once for the inventory. A fault of the driver is a state, not an error."""
        self._due = self._clock()
        found = await self._answer(min(self.timeout, _OPEN_TIMEOUT))
        if found is not None:
            self._apply(found, 0)
            self._events.clear()  # the state at the start is no event
            self._found = found  # the first tick follows at once
        else:
            self.inventory = msgspec.structs.replace(self.inventory, driver_message="nvidia-smi has not answered yet")

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return rows if a run has ended by the deadline, else none at all.

        A run reads both lanes, and both are returned regardless of `lanes`: the slow lane may
        never be due at a tick that has a run.
        """
        del tick
        if self._released:
            return self._gaps(lanes, ERROR)
        found, self._found = self._found, None
        if found is None:
            found = await self._answer(max(0.0, deadline))
        if found is None:
            return {}
        document = self._apply(found, now_ns)
        return self._gaps(_LANES, self._gap) if document is None else self._rows(document)

    def drain_events(self) -> list[DeviceEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    async def release(self) -> None:
        """Start no further runs until `resume`."""
        self._released = True
        self._found = None
        self._drop_run()
        self.inventory = msgspec.structs.replace(
            self.inventory, driver_state="released", driver_message="released on request"
        )

    async def resume(self) -> None:
        """Run again from the next tick on."""
        self._released = False
        self._due = self._clock()

    async def close(self) -> None:
        """Terminate a running process, and close all."""
        self._drop_run()
        for run in self._abandoned:
            run.forget()
        self._abandoned = []

    async def _answer(self, seconds: float) -> list[Document] | Failure | None:
        """Start a run when one is due, wait for it, and return its result; None without one."""
        now = self._clock()
        self._reap()
        if self._run is None:
            if now < self._due - self.interval / 10:  # a tick may come a little early
                return None
            if len(self._abandoned) >= MAX_ABANDONED:
                self._due = now + self.interval
                return self._hung(f"{len(self._abandoned)} runs of it hang, so no more are started")
            late = now - self._due > self.interval
            self._due = (now if late else self._due) + self.interval
            try:
                self._run = await asyncio.to_thread(SmiRun, self.command, now)
            except OSError as error:
                return self._no_start(error)
        while not self._run.over():
            waited = self._clock() - now
            if self._clock() - self._run.started >= self.timeout:
                return self._abandon(self._run)
            if waited >= seconds:
                return None
            await asyncio.sleep(_POLL)
        run, self._run = self._run, None
        found = self._parse(run)
        run.forget()
        return found

    def _parse(self, run: SmiRun) -> list[Document] | Failure:
        text, errors = run.texts()
        failure = failure_of(text) or failure_of(errors)
        if failure is not None and "<gpu" not in text:
            return failure
        try:
            return documents_of(text or errors, "nvidia-smi")
        except SourceError as error:
            output = (text.strip() or errors.strip() or "nothing").split("\n", 1)[0][:200]
            log.debug("nvidia-smi: %s", error)
            return Failure(
                "missing",
                f"nvidia-smi ended with code {run.code} and printed '{output}'. Run `nvidia-smi -q -x` by hand.",
            )

    def _no_start(self, error: OSError) -> Failure:
        if isinstance(error, FileNotFoundError):
            cure = "it is not installed, or not on this process's PATH"
            return Failure("missing", f"{self.command[0]}: no such command: {cure}.")
        state = "no_permission" if isinstance(error, PermissionError) else "missing"
        return Failure(state, f"{self.command[0]} can't be started: {error.strerror or error}.")

    def _abandon(self, run: SmiRun) -> Failure:
        run.terminate()
        self._run = None
        self._abandoned.append(run)
        self.abandoned += 1
        log.warning("nvidia-smi hangs: pid=%d abandoned after %.0f s", run.pid, self.timeout)
        return self._hung(f"it has not ended for {self.timeout:g} s")

    def _hung(self, why: str) -> Failure:
        return Failure("hung", f"nvidia-smi hangs in the driver: {why}. See `dmesg` for Xids.")

    def _apply(self, found: list[Document] | Failure, now_ns: int) -> Document | None:
        """Update the inventory from a result, and add events of changes."""
        old = self.inventory
        if isinstance(found, Failure):
            self._gap = TIMED_OUT if found.state == "hung" else ERROR
            self.inventory = msgspec.structs.replace(old, driver_state=found.state, driver_message=found.message)
            document = None
        else:
            document = found[-1]
            self.inventory = _joined(old, inventory_of(document, _SOURCE))
        if self.inventory != old:
            self._events += inventory_events(old, self.inventory, now_ns)
        else:
            self.inventory = old
        return document

    def _rows(self, document: Document) -> Rows:
        """Return rows in the order of the inventory; those of lost GPUs are gaps."""
        fresh = rows_of(document, _LANES)
        keys = [gpu.uuid for gpu in inventory_of(document).gpus]
        for number, rows in fresh.items():
            block = SCHEMA.blocks[number]
            if block.table is Table.GPU:
                by_key = dict(zip(keys, rows, strict=True))
                lost = [DEVICE_LOST] * len(block.names)
                fresh[number] = [by_key.get(gpu.uuid, lost) for gpu in self.inventory.gpus]
        return fresh

    def _gaps(self, lanes: frozenset[Lane], gap: float) -> Rows:
        return {
            number: [[gap] * len(block.names) for _ in devices]
            for number, block in enumerate(SCHEMA.blocks)
            for devices in (self.inventory.gpus if block.table is Table.GPU else self.inventory.links,)
            if block.lane in lanes and block.table in {Table.GPU, Table.LINK}
        }

    def _reap(self) -> None:
        for run in [run for run in self._abandoned if run.over()]:
            self._abandoned.remove(run)
            run.forget()

    def _drop_run(self) -> None:
        if self._run is not None:
            self._run.terminate()
            self._abandoned.append(self._run)
            self._run = None


def _joined(old: Inventory, new: Inventory) -> Inventory:
    """Return the new inventory with lost GPUs, and with the names of GPUs that report none."""
    known = {gpu.pci: gpu for gpu in old.gpus if gpu.pci is not None}
    found: dict[str, Gpu] = {}
    for gpu in new.gpus:
        before = known.get(gpu.pci or "")
        if before is not None and not gpu.present:
            found[before.uuid] = msgspec.structs.replace(before, present=False)
        else:
            found[gpu.uuid] = gpu
    named = {gpu.pci for gpu in found.values()}
    gpus = [
        found.pop(gpu.uuid) if gpu.uuid in found else msgspec.structs.replace(gpu, present=False)
        for gpu in old.gpus
        if gpu.uuid in found or not (gpu.uuid.startswith(NAMELESS) and gpu.pci in named)
    ]
    return msgspec.structs.replace(new, gpus=(*gpus, *found.values()))
