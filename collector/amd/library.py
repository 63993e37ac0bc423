"""libamd_smi as a source of what sysfs does not say, symbol by symbol: one that is missing is a gap.

The library locks each GPU across processes, so that a call may wait for another program without end. All
calls are therefore made in a thread of their own, and a reading takes the newest answers: one that is too old
is a gap `timed_out`, and the files of sysfs go on.

Only plain numbers, and structs of releases that were compared with their header, are read
(https://github.com/ROCm/amdsmi/blob/amd-mainline/include/amd_smi/amdsmi.h); buffers are larger than any
struct of the library, so that a newer one can't write behind them.
"""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from collector.amd.gpu_metrics import ABSENT
from telemetry.gap import GAP, Gap

log = logging.getLogger(__name__)

STRUCTS = frozenset({26})
"""Major releases of the library whose structs are known: 26 is that of ROCm 7.0."""
FRESH = 60.0
"""Seconds for which an answer counts."""
RETRY = 30.0
"""Seconds between two tries to initialise the library."""
_INIT_GPUS = 2
_BUFFER = 65536
_BLOCK_UMC = 1
_BLOCK = 1 << 20
_ROOM = 64
"""Handles that fit."""
_PAGE = struct.Struct("<QQI4x")
_MOST_PAGES = 16384
_EVENT_BYTES = 272
EVENTS = {1: "vm_fault", 2: "thermal_throttle", 3: "reset_begin", 4: "reset_end"}
"""Events of the library that are waited for; by number, because two of its names are the same."""
_LINK_STATES = {0: 0.0, 1: 1.0, 2: 3.0}
"""Down, up, disabled: as `link_state` names them."""
_GAPS = {2: Gap.NOT_SUPPORTED, 3: Gap.NOT_SUPPORTED, 10: Gap.NO_PERMISSION, 8: Gap.TIMED_OUT}
MISSING = 5
"""AMDSMI_STATUS_FAIL_LOAD_SYMBOL: what a symbol that the library lacks answers."""
VIOLATIONS = {"prochot": 24, "ppt": 32, "socket_thm": 40, "vr_thm": 48, "hbm_thm": 56}
"""Offsets of the accumulated cycles in amdsmi_violation_status_t; those of all cycles are at 16."""
_PCIE = {"replays": 16, "recoveries": 24, "rollovers": 32, "naks_sent": 40, "naks_received": 48}
"""Offsets in the metrics of amdsmi_pcie_info_t."""
_PCIE_METRIC = 96
"""Bytes of the static part before the metrics."""

Answer = float | list[float]


def find_library() -> ctypes.CDLL | None:
    """Load the library by its name, or from where ROCm installs it; None where there is none."""
    places = [f"{place}/lib/" for name in ("ROCM_HOME", "ROCM_PATH") if (place := os.environ.get(name))]
    for place in (*places, "", "/opt/rocm/lib/"):
        for name in ("libamd_smi.so", "libamd_smi.so.26"):
            if place and not Path(place, name).exists():
                continue
            try:
                return ctypes.CDLL(f"{place}{name}")
            except OSError:
                continue
    return None


class AmdLibrary:
    """The library, its handles, and the newest answers by PCI address."""

    def __init__(self, load: Callable[[], ctypes.CDLL | None] = find_library) -> None:
        self._load = load
        self._library: ctypes.CDLL | None = None
        self._handles: dict[str, ctypes.c_void_p] = {}
        self._answers: dict[str, tuple[float, dict[str, Answer]]] = {}
        self._due = threading.Event()
        self._ended = False
        self._buffer = ctypes.create_string_buffer(_BUFFER)
        self.major: int | None = None
        self.state = Gap.NOT_READ
        """Why there are no answers, while there are none."""
        self.version = ""
        self._since = time.monotonic()
        self.texts: dict[str, tuple[str, str]] = {}
        """Name and serial number by PCI address."""
        self._thread = threading.Thread(target=self._run, name="amd-smi", daemon=True)

    def start(self) -> None:
        """Start the thread that calls the library."""
        self._thread.start()

    def request(self) -> None:
        """Request new answers; never waits."""
        self._due.set()

    def answer(self, pci: str, name: str) -> Answer:
        """Return the newest answer for a GPU, or the gap in its place."""
        at, answers = self._answers.get(pci, (0.0, {}))
        if not at:
            late = self.state is Gap.NOT_READ and time.monotonic() - self._since > FRESH
            return GAP[Gap.TIMED_OUT if late else self.state]
        if time.monotonic() - at > FRESH:
            return GAP[Gap.TIMED_OUT]
        return answers.get(name, GAP[Gap.NOT_SUPPORTED])

    def close(self) -> None:
        """End the thread; wait for a call that hangs, because its process may not end before."""
        self._ended = True
        self._due.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._handles and self._library is not None:
            self._call("amdsmi_shut_down")

    # ---- the thread ----

    def _run(self) -> None:
        while not self._ended:
            try:
                if self._handles or self._open():
                    for pci, handle in self._handles.items():
                        self._answers[pci] = time.monotonic(), self._ask(handle)
            except Exception:
                log.exception("libamd_smi can't be read")
                self.state = Gap.ERROR
            self._due.wait(None if self._handles else RETRY)
            self._due.clear()

    def _open(self) -> bool:
        """Load and initialise the library; return whether there is any GPU."""
        if self._library is None:
            self._library = self._load()
        if self._library is None:
            self.state = Gap.NOT_SUPPORTED
            return False
        code = self._call("amdsmi_init", ctypes.c_uint64(_INIT_GPUS))
        if code:
            self.state = _GAPS.get(code, Gap.ERROR)
            return False
        version = (ctypes.c_uint32 * 8)()
        if not self._call("amdsmi_get_lib_version", version):
            self.major = version[0]
            self.version = ".".join(map(str, version[:3]))
        handles: dict[str, ctypes.c_void_p] = {}
        for socket in self._list("amdsmi_get_socket_handles"):
            for handle in self._list("amdsmi_get_processor_handles", socket):
                place = ctypes.c_uint64()
                if self._call("amdsmi_get_gpu_device_bdf", handle, ctypes.byref(place)):
                    continue
                pci = _address(place.value)
                handles[pci] = handle
                self._describe(pci, handle)
        self._handles = handles
        if not handles:
            self.state = Gap.NOT_SUPPORTED
        return bool(handles)

    def _list(self, name: str, *parent: ctypes.c_void_p) -> list[ctypes.c_void_p]:
        count = ctypes.c_uint32(_ROOM)
        room = (ctypes.c_void_p * _ROOM)()
        if self._call(name, *parent, ctypes.byref(count), room):
            return []
        return [ctypes.c_void_p(each) for each in room[: min(count.value, _ROOM)] if each]

    def _describe(self, pci: str, handle: ctypes.c_void_p) -> None:
        if self.major in STRUCTS and not self._fill("amdsmi_get_gpu_asic_info", handle):
            data = self._buffer.raw
            self.texts[pci] = _text(data[:256]), _text(data[532:788])

    def _ask(self, handle: ctypes.c_void_p) -> dict[str, Answer]:
        found: dict[str, Answer] = {}
        self._ask_errors(handle, found)
        self._ask_pages(handle, found)
        if self.major in STRUCTS:
            self._ask_structs(handle, found)
        return found

    def _ask_errors(self, handle: ctypes.c_void_p, found: dict[str, Answer]) -> None:
        for name, arguments in (("gpu_total_ecc_count", ()), ("gpu_ecc_count", (ctypes.c_uint64(_BLOCK_UMC),))):
            code = self._fill(f"amdsmi_get_{name}", handle, *arguments)
            counts = struct.unpack_from("<3Q", self._buffer)
            for word, count in zip(("corrected", "uncorrected", "deferred"), counts, strict=True):
                found[f"{name}/{word}"] = _gap(code) if code else _number(count)

    def _ask_pages(self, handle: ctypes.c_void_p, found: dict[str, Answer]) -> None:
        limit = ctypes.c_uint32()
        code = self._call("amdsmi_get_gpu_bad_page_threshold", handle, ctypes.byref(limit))
        found["gpu_bad_page_threshold"] = _gap(code) if code else _number(limit.value)
        count = ctypes.c_uint32()
        code = self._call("amdsmi_get_gpu_bad_page_info", handle, ctypes.byref(count), None)
        pages: list[int] = []
        if not code and 0 < count.value <= _MOST_PAGES:
            room = ctypes.create_string_buffer((count.value + _ROOM) * _PAGE.size)
            code = self._call("amdsmi_get_gpu_bad_page_info", handle, ctypes.byref(count), room)
            kept = room.raw[: min(count.value, _MOST_PAGES) * _PAGE.size]
            pages = [status for _, _, status in _PAGE.iter_unpack(kept)]
        elif count.value > _MOST_PAGES:
            code = 1
        found["gpu_bad_page_info/retired"] = _gap(code) if code else float(pages.count(0))
        for number, word in ((1, "pending"), (2, "failed")):
            found[f"gpu_bad_page_info/{word}"] = _gap(code) if code else float(number in pages)

    def _ask_structs(self, handle: ctypes.c_void_p, found: dict[str, Answer]) -> None:
        code = self._fill("amdsmi_get_pcie_info", handle)
        for word, offset in _PCIE.items():
            (count,) = struct.unpack_from("<Q", self._buffer, _PCIE_METRIC + offset)
            found[f"pcie_info/{word}"] = _gap(code) if code else _number(count)
        code = self._fill("amdsmi_get_xgmi_link_status", handle)
        (links,) = struct.unpack_from("<I", self._buffer)
        if code:
            found["gpu_xgmi_link_status"] = _gap(code)
        else:
            states = struct.unpack_from(f"<{min(links, 8)}I", self._buffer, 4)
            found["gpu_xgmi_link_status"] = [_LINK_STATES.get(each, GAP[Gap.NOT_SUPPORTED]) for each in states]
        code = self._fill("amdsmi_get_violation_status", handle)
        (cycles,) = struct.unpack_from("<Q", self._buffer, 16)
        found["violation_status/cycles"] = _gap(code) if code else _number(cycles)
        for word, offset in VIOLATIONS.items():
            (count,) = struct.unpack_from("<Q", self._buffer, offset)
            found[f"violation_status/{word}"] = _gap(code) if code else _number(count)

    # ---- events, in the probe's thread for events ----

    def register(self) -> bool:
        """Register for the events of all GPUs; return whether any delivers them."""
        mask = sum(1 << (number - 1) for number in EVENTS)
        good = False
        for handle in self._handles.values():
            if not self._call("amdsmi_init_gpu_event_notification", handle):
                code = self._call("amdsmi_set_gpu_event_notification_mask", handle, ctypes.c_uint64(mask))
                good = good or not code
        return good

    def wait(self, milliseconds: int) -> list[tuple[str, int, str]] | None:
        """Return the events that came within that time: PCI address, number and text; None after an error."""
        count = ctypes.c_uint32(_ROOM)
        room = ctypes.create_string_buffer(_ROOM * _EVENT_BYTES)
        code = self._call("amdsmi_get_gpu_event_notification", ctypes.c_int(milliseconds), ctypes.byref(count), room)
        if code in {8, 31, 40}:  # timeout, not found, no data: none came
            return []
        if code:
            return None
        by_handle = {handle.value: pci for pci, handle in self._handles.items()}
        found = []
        for number in range(min(count.value, _ROOM)):
            handle, kind, text = struct.unpack_from("<QI256s", room, number * _EVENT_BYTES)
            found.append((by_handle.get(handle, ""), kind, _text(text)))
        return found

    @property
    def ready(self) -> bool:
        """Whether the library is initialised and lists a GPU."""
        return bool(self._handles)

    # ---- calls ----

    def _fill(self, name: str, *arguments: object) -> int:
        """Call a function whose last argument is a struct, into the cleared buffer."""
        ctypes.memset(self._buffer, 0, _BUFFER)
        return self._call(name, *arguments, self._buffer)

    def _call(self, name: str, *arguments: object) -> int:
        """Call a function; return its status, or `MISSING` where the library has none such."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            return MISSING
        function.restype = ctypes.c_uint32
        return int(function(*arguments))


def _gap(code: int) -> float:
    return GAP[Gap.NOT_SUPPORTED if code == MISSING else _GAPS.get(code, Gap.ERROR)]


def _number(count: int) -> float:
    return GAP[Gap.NOT_SUPPORTED] if count in ABSENT else float(count)


def _text(data: bytes) -> str:
    text = data.split(b"\0")[0].decode("utf-8", "replace").strip()
    return "" if text == "N/A" or not text.isprintable() else text


def _address(value: int) -> str:
    """Return the address of amdsmi_bdf_t: function 3 bits, device 5, bus 8, domain 48."""
    return f"{value >> 16:04x}:{value >> 8 & 0xFF:02x}:{value >> 3 & 0x1F:02x}.{value & 7:x}"
