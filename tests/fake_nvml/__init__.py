"""A scripted `libnvidia-ml.so.1`, for the real nvidia-ml-py in real processes.

    with FakeDriver(tmp_path, gpus=8) as fake:          # eight healthy H100, 18 links each
        source = NvmlSource(environment=fake.environment)
        fake.set(gpu=3, state="hang")                    # calls of GPU 3 block until "ok"
        fake.set(gpu=2, state="lost")                    # and stays so until NVML starts anew
        fake.set(gpu=4, latency=20_000)                  # microseconds a call
        fake.call("nvmlDeviceGetPowerUsage", 65_000, gpu=1)
        fake.call("nvmlDeviceGetFanSpeed", error=3)      # every GPU; 3 is NOT_SUPPORTED
        fake.processes(0, compute={4711: 1 << 30})       # PID and memory; graphics=, mps=, busy=
        fake.field(230, 4, gpu=0)                        # value of a field id
        fake.xid(gpu=1, xid=79)
        fake.driver(init=9)                              # opening fails: not loaded
        fake.calls()                                     # {"nvmlDeviceGetFieldValues": 120, ...}

Changes reach a running process with its next call. The file `control` holds one fact a line:
`<gpu or *> <key> TAB <type> TAB <values>`; a key is a function with its argument after a slash
(`nvmlDeviceGetClockInfo/1`), `field <id> <scope or *>`, `gpm <id>`, or one of: gpus, init,
init_hang, all (code of every device call), driver, cuda, wait (code of nvmlEventSetWait), code,
hang, latency, field_limit. Types are those of nvmlFieldValue (u U l s i h d), t text, e error.
Leaving the `with` block ends every hang, so that the processes that hung can end by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.fake_driver import Fact, ScriptedDriver
from tests.fake_nvml.build import build, functions
from tests.fake_nvml.profiles import GB300, GEFORCE, H100

__all__ = ["GB300", "GEFORCE", "H100", "FakeDriver"]

STATES = {
    "ok": {"hang": 0, "code": 0},
    "hang": {"hang": 1, "code": 0},
    "lost": {"hang": 0, "code": 15},
    "reset_required": {"hang": 0, "code": 16},
}
XID_EVENT = 8
NO_INSTANCE = 0xFFFF_FFFF
NO_MEMORY = 0xFFFF_FFFF_FFFF_FFFF
"""What the driver answers for a process whose memory it does not know."""


class FakeDriver(ScriptedDriver):
    """The driver of one machine, scripted through a folder."""

    def __init__(self, folder: Path, gpus: int = 8, profile: dict[str, Fact] = H100, links: int = 18) -> None:
        super().__init__(folder / "nvml", functions())
        self._library = build()
        self._facts = {f"* {key}": fact for key, fact in profile.items()}
        self._put("*", "driver", ("t", "580.95.05"))
        self._put("*", "cuda", ("u", "13000"))
        self._put("*", "gpus", ("u", str(gpus)))
        for gpu in range(gpus):
            self._put(gpu, "nvmlDeviceGetUUID", ("t", self.uuid(gpu)))
            self._put(gpu, "nvmlDeviceGetSerial", ("t", f"165432300{gpu:04}"))
            self._put(gpu, "nvmlDeviceGetPciInfo_v3", ("t", self.pci(gpu)))
            self._put(gpu, "nvmlDeviceGetMinorNumber", ("u", str(gpu)))
            self._put(gpu, "nvmlDeviceGetIndex", ("u", str(gpu)))
            self._put(gpu, "nvmlDeviceGetModuleId", ("u", str(gpu + 1)))
            self._put(gpu, "nvmlDeviceGetMemoryAffinity/0", ("u", str(1 << gpu // 4)))
        if "field 138 *" in profile:
            for link in range(links):
                self._link("*", link, 2, f"0000:{0xC1 + link % 4:02x}:00.0")
        self._write()

    @staticmethod
    def uuid(gpu: int) -> str:
        """The UUID of a GPU by its index."""
        return f"GPU-fade0000-0000-4000-8000-{gpu:012}"

    @staticmethod
    def pci(gpu: int) -> str:
        """The PCI address of a GPU by its index, in the normal form of the inventory."""
        return f"0000:{0x18 + gpu * 0x11:02x}:00.0"

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to load this driver."""
        inherited = os.environ.get("LD_LIBRARY_PATH")
        path = f"{self._library}:{inherited}" if inherited else str(self._library)
        return {"LD_LIBRARY_PATH": path, "KILOWATCH_FAKE_NVML": str(self.folder)}

    env = property(lambda self: self.environment)

    def set(self, gpu: int, *, state: str | None = None, latency: int | None = None) -> None:
        """Set the state (ok, hang, lost, reset_required) or the latency (us a call) of a GPU."""
        for key, value in STATES[state].items() if state is not None else ():
            self._put(gpu, key, ("u", str(value)))
        if latency is not None:
            self._put(gpu, "latency", ("u", str(latency)))
        self._write()

    def driver(
        self,
        *,
        init: int | str | None = None,
        everything: int | None = None,
        version: str | None = None,
        gpus: int | None = None,
        wait: int | None = None,
    ) -> None:
        """Set what concerns all GPUs.

        `init` is nvmlInit's code, or "hang"; `everything` the code of every call of a device (9:
        the module is gone); `wait` the code of nvmlEventSetWait; `gpus` how many there are.
        """
        if init is not None:
            self._put("*", "init_hang", ("u", str(int(init == "hang"))))
            self._put("*", "init", ("u", str(init if isinstance(init, int) else 0)))
        for key, value in (("all", everything), ("gpus", gpus), ("wait", wait)):
            if value is not None:
                self._put("*", key, ("u", str(value)))
        if version is not None:
            self._put("*", "driver", ("t", version))
        self._write()

    def exclude(self, *addresses: str) -> None:
        """Have the driver leave out the GPUs of these PCI addresses, as NVML writes them, when it is opened."""
        self._put("*", "excluded", ("u", str(len(addresses))))
        for number, address in enumerate(addresses):
            self._put("*", f"excluded/{number}", ("t", address))
        self._write()

    def call(self, key: str, *values: float | str, gpu: int | None = None, error: int | None = None) -> None:
        """Set the answer of a function (`name` or `name/argument`), of one GPU or of all."""
        if error is not None:
            self._put(self._who(gpu), key, ("e", str(error)))
        else:
            kind = "t" if values and isinstance(values[0], str) else "u"
            self._put(self._who(gpu), key, (kind, " ".join(map(str, values))))
        self._write()

    def processes(
        self,
        gpu: int,
        *,
        compute: Mapping[int, int | tuple[int, int]] | None = None,
        mps: Mapping[int, int | tuple[int, int]] | None = None,
        graphics: Mapping[int, int | tuple[int, int]] | None = None,
        busy: Mapping[int, int] | None = None,
        form: str = "_v3",
    ) -> None:
        """Set the processes of a GPU: bytes by PID, or bytes and MIG instance; `busy`: percent by PID. Lists
        that are not named are empty, and without `busy` nothing is known of use."""
        for kind, listed in (("Compute", compute), ("MPSCompute", mps), ("Graphics", graphics)):
            name = f"nvmlDeviceGet{kind}RunningProcesses{form}"
            rows = dict(listed or {})
            self._put(gpu, name, ("u", str(len(rows))))
            for number, (pid, value) in enumerate(rows.items()):
                memory, instance = value if isinstance(value, tuple) else (value, NO_INSTANCE)
                own = 0 if isinstance(value, tuple) else NO_INSTANCE
                self._put(gpu, f"{name}/{number}", ("u", f"{pid} {memory} {instance} {own}"))
        name = "nvmlDeviceGetProcessUtilization"
        self._put(gpu, name, ("u", str(len(busy))) if busy is not None else ("e", "3"))
        for number, (pid, percent) in enumerate((busy or {}).items()):
            self._put(gpu, f"{name}/{number}", ("u", f"{pid} {percent}"))
        self._write()

    def field(
        self,
        number: int,
        value: float = 0,
        *,
        gpu: int | None = None,
        scope: int | str = 0,
        kind: str = "U",
        error: int | None = None,
    ) -> None:
        """Set the value of a field id; `kind` is its type letter, `scope` "*" every link."""
        fact = ("e", str(error)) if error is not None else (kind, str(value))
        self._put(self._who(gpu), f"field {number} {scope}", fact)
        self._write()

    def fields(self, number: int, values: Mapping[int, int]) -> None:
        """Set the value of a field id of several GPUs at once, by their index."""
        for gpu, value in values.items():
            self._put(gpu, f"field {number} 0", ("U", str(value)))
        self._write()

    def gpm(self, number: int, value: float, *, gpu: int | None = None) -> None:
        """Set the value of a GPM metric."""
        self._put(self._who(gpu), f"gpm {number}", ("d", str(value)))
        self._write()

    def mig(self, gpu: int, *parts: Mapping[str, int | str | float]) -> None:
        """Split a GPU into instances, or make it whole again without any. A part has `instance` (its GPU
        instance) and may have `compute`, `profile`, `slices`, `memory` (MiB), `used`, `processes`, `placement` (its
        first memory slice; told to nobody without) and GPM metrics by id (`gpm 2`)."""
        for key in [key for key in self._facts if key.startswith((f"{gpu} mig", f"{gpu} nvmlGpuInstance"))]:
            del self._facts[key]
        self._put(gpu, "nvmlDeviceGetMigMode", ("u", f"{int(bool(parts))} {int(bool(parts))}"))
        self._put(gpu, "nvmlDeviceGetMaxMigDeviceCount", ("u", "7"))
        name = self._facts["* nvmlDeviceGetName"][1]
        for number, part in enumerate(parts, 1):
            own, mib = f"mig{number}", int(part.get("memory", 9856))
            used, slices = int(part.get("used", 1024)), int(part.get("slices", 1))
            facts: dict[str, Fact] = {
                "nvmlDeviceGetUUID": ("t", self.mig_uuid(gpu, int(part["instance"]))),
                "nvmlDeviceGetName": ("t", f"{name} MIG {part['profile']}" if "profile" in part else name),
                "nvmlDeviceGetGpuInstanceId": ("u", str(part["instance"])),
                "nvmlDeviceGetComputeInstanceId": ("u", str(part.get("compute", 0))),
                "nvmlDeviceGetAttributes_v2": ("u", f"{16 * slices} {slices} {slices} {mib}"),
                "nvmlDeviceGetMemoryInfo_v2": ("u", f"{mib << 20} 0 {mib - used << 20} {used << 20}"),
                "nvmlDeviceGetComputeRunningProcesses_v3": ("u", str(part.get("processes", 0))),
            }
            for key, fact in facts.items():
                self._put(gpu, f"{own} {key}", fact)
            if "placement" in part:
                self._put(gpu, f"nvmlGpuInstanceGetInfo/{part['instance']}", ("u", str(part["placement"])))
            for key in [key for key in part if key.startswith("gpm ")]:
                self._put(gpu, f"{key}/{part['instance']}", ("d", str(part[key])))
        self._write()

    @staticmethod
    def mig_uuid(gpu: int, instance: int) -> str:
        """The UUID of a MIG instance by the index of its GPU and its number."""
        return f"MIG-fade0000-0000-4000-{instance:04}-{gpu:012}"

    def link(self, gpu: int, number: int, *, state: int | None = None, peer: int | None = None) -> None:
        """Set the state of a link, or connect it to another GPU (`peer`, an index)."""
        if peer is not None:
            self._link(gpu, number, 0, self.pci(peer))
        if state is not None:
            self._put(gpu, f"field 165 {number}", ("u", str(state)))
            self._put(gpu, f"nvmlDeviceGetNvLinkState/{number}", ("u", str(int(state == 1))))
        self._write()

    def xid(self, gpu: int, xid: int, *, type: int = XID_EVENT) -> None:  # noqa: A002
        """Deliver an event to every event set that waits for it."""
        with (self.folder / "events").open("a") as file:
            file.write(f"{gpu} {type} {xid}\n")

    def _link(self, gpu: int | str, number: int, kind: int, pci: str) -> None:
        self._put(gpu, f"nvmlDeviceGetNvLinkState/{number}", ("u", "1"))
        self._put(gpu, f"nvmlDeviceGetNvLinkRemoteDeviceType/{number}", ("u", str(kind)))
        self._put(gpu, f"nvmlDeviceGetNvLinkRemotePciInfo_v2/{number}", ("t", pci))
        self._put(gpu, f"field 165 {number}", ("u", "1"))
        self._put(gpu, f"field 164 {number}", ("u", "26562"))
