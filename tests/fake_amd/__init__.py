"""A node with AMD GPUs: a tree of sysfs as amdgpu and KFD write it, and a scripted `libamd_smi.so`.

    with FakeAmd(tmp_path, gpus=8) as fake:             # eight healthy MI300X, each linked to all others
        source = AmdSource(root=fake.root, environment=fake.environment)
        fake.set(gpu=3, state="hang")                    # opening a file of GPU 3 blocks until "ok"
        fake.set(gpu=2, state="lost")                    # gone from the bus, until "ok"
        fake.set(gpu=4, state="reset")                   # every file refused with EPERM, as in a reset
        fake.table(gpu=1, current_socket_power=640)      # fields of gpu_metrics
        fake.file(gpu=1, path="ras/umc_err_count", text="ue: 1\nce: 4\n")
        fake.unload()                                    # the driver is gone; `load()` brings it back
        fake.library("amdsmi_get_gpu_bad_page_threshold", 128)
        fake.event(gpu=0, kind=3, text="begin")

The tree is files, so that the real code reads it; what files can't do, a preloaded library does (`sysfs.c`).
Nothing of it was compared with a real board: files and fields are those that the kernel's source names.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

from collector.amd.gpu_metrics import LAYOUTS
from tests.fake_driver import ScriptedDriver
from tests.fake_driver.build import build

HERE = Path(__file__).resolve().parent
VARIABLE = "KILOWATCH_FAKE_AMD"
FUNCTIONS = [*re.findall(r"^unsigned (amdsmi_\w+)\(", (HERE / "amdsmi.c").read_text(), re.MULTILINE), "open"]
"""What is counted; `open` is each opening of a file of a GPU."""
GIB = 1 << 30
EPERM = 1
BLOCKS = ["umc", "sdma", "gfx", "mmhub", "athub", "pcie_bif", "hdp", "xgmi_wafl"]
HEALTHY = {
    "temperature_hotspot": 52, "temperature_mem": 47, "temperature_vrsoc": 45,
    "current_socket_power": 612, "average_socket_power": 290, "average_gfx_activity": 97,
    "average_umc_activity": 41, "energy_accumulator": 65536 * 1000, "system_clock_counter": 1,
    "accumulation_counter": 1000, "prochot": 0, "ppt": 0, "socket_thm": 0, "vr_thm": 0, "hbm_thm": 0,
    "pcie_link_width": 16, "pcie_link_speed": 320, "xgmi_link_width": 16, "xgmi_link_speed": 32,
    "pcie_l0_to_recov_count_acc": 3, "pcie_replay_count_acc": 2, "pcie_replay_rover_count_acc": 0,
    "pcie_nak_sent_count_acc": 1, "pcie_nak_rcvd_count_acc": 0, "num_partition": 1,
    "xgmi_read_data_acc": [1000 * (entry + 1) for entry in range(8)],
    "xgmi_write_data_acc": [2000 * (entry + 1) for entry in range(8)],
    "xgmi_link_status": [1] * 8, "gfxclk": [2100, 2100, 2100, 2100, 2100, 2100, 2100, 1900],
    "uclk": 1300, "vclk0": [29, 29, 29, 29],
}  # fmt: skip
"""Fields of `gpu_metrics` of a busy MI300X; all others say that they have no value."""
Value = int | list[int]


class FakeAmd(ScriptedDriver):
    """AMD's driver of one machine, scripted through a folder."""

    def __init__(
        self,
        folder: Path,
        gpus: int = 8,
        *,
        device: int = 0x74A1,
        revision: tuple[int, int] = (1, 7),
        memory: int = 192 * GIB,
        watts: int = 750,
        library: bool = True,
        without: Sequence[str] = (),
    ) -> None:
        """`device` is the PCI device id, `revision` that of `gpu_metrics`, `memory` and `watts` of the board;
        `without` are functions that the library lacks."""
        super().__init__(folder / "amd", FUNCTIONS)
        self.root = self.folder / "root"
        self.revision = revision
        self._count = gpus
        self._tables: list[dict[str, Value]] = [dict(HEALTHY) for _ in range(gpus)]
        self._shim = build("sysfs.so", [HERE / "sysfs.c"], FUNCTIONS, VARIABLE)
        self._library = None
        if library:
            lacking = "".join(f"#define {name} static __attribute__((unused)) lacking_{name}\n" for name in without)
            self._library = build("libamd_smi.so", [HERE / "amdsmi.c"], FUNCTIONS, VARIABLE, defines=lacking)
        for gpu in range(gpus):
            self._device(gpu, device, memory, watts)
        self.load()
        self._write_text(self.root / "proc/sys/kernel/osrelease", "6.14.0-test\n")
        self._topology()
        self._put("*", "gpus", ("u", str(gpus)))
        self._put("*", "amdsmi_get_lib_version", ("u", "26 0 2"))
        for gpu in range(gpus):
            bus = int(self.pci(gpu)[5:7], 16)
            self._put(gpu, "place", ("t", self.pci(gpu)))
            self._put(gpu, "amdsmi_get_gpu_device_bdf", ("u", str(bus << 8)))
        for name, values in {
            "amdsmi_get_gpu_total_ecc_count": "0 0 0",
            "amdsmi_get_gpu_ecc_count": "0 0 0",
            "amdsmi_get_gpu_bad_page_threshold": "128",
            "amdsmi_get_pcie_info": "2 3 0 1 0",
            "amdsmi_get_xgmi_link_status": " ".join(["1"] * (gpus - 1)),
            "amdsmi_get_violation_status": "1000 0 0 0 0 0",
        }.items():
            self._put("*", name, ("u", values))
        self._put("*", "amdsmi_get_gpu_asic_info", ("t", "AMD Instinct MI300X,0x1a2b3c4d"))
        self._write()

    @staticmethod
    def uuid(gpu: int) -> str:
        """The UUID of a GPU by its index."""
        return f"GPU-fade00000000{gpu:04x}"

    @staticmethod
    def pci(gpu: int) -> str:
        """The PCI address of a GPU by its index, in the normal form of the inventory."""
        return f"0000:{0x05 + gpu * 0x10:02x}:00.0"

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to load the library, and to be refused files."""
        found = {VARIABLE: str(self.folder), "LD_PRELOAD": str(self._shim / "sysfs.so")}
        if self._library is not None:
            inherited = os.environ.get("LD_LIBRARY_PATH")
            path = f"{self._library}:{inherited}" if inherited else str(self._library)
            found["LD_LIBRARY_PATH"] = path
        return found

    def set(self, gpu: int, *, state: str) -> None:
        """Set the state of a GPU: ok, hang, lost or reset."""
        self._put(gpu, "hang", ("u", str(int(state == "hang"))))
        self._put(gpu, "errno", ("u", str(EPERM if state == "reset" else 0)))
        device, away = self._folder(gpu), self.folder / f"lost-{gpu}"
        link = self.root / "sys/bus/pci/drivers/amdgpu" / self.pci(gpu)
        if state == "lost" and device.exists():
            link.unlink()
            device.rename(away)
        elif state != "lost" and away.exists():
            away.rename(device)
            link.symlink_to(device)
        self._write()

    def unload(self) -> None:
        """Take the driver away, as `modprobe -r amdgpu` does."""
        shutil.rmtree(self.root / "sys/bus/pci/drivers/amdgpu")
        for gpu in range(self._count):
            (self._folder(gpu) / "driver").unlink()

    def load(self) -> None:
        """Load the driver."""
        driver = self.root / "sys/bus/pci/drivers/amdgpu"
        driver.mkdir(parents=True)
        for gpu in range(self._count):
            (driver / self.pci(gpu)).symlink_to(self._folder(gpu))
            (self._folder(gpu) / "driver").symlink_to(driver)

    def table(self, gpu: int, **fields: Value) -> None:
        """Set fields of `gpu_metrics`."""
        self._tables[gpu].update(fields)
        layout = LAYOUTS[self.revision]
        data = bytearray(b"\xff" * layout.size)
        struct.pack_into("<HBB", data, 0, layout.size, *self.revision)
        for name, value in self._tables[gpu].items():
            if name in layout.fields:
                code, offset = layout.fields[name]
                values = value if isinstance(value, list) else [value]
                values = values[: struct.calcsize(code) // struct.calcsize(code[-1])]
                struct.pack_into(code, data, offset, *values)
        busy = fields.get("xcd_busy")
        if layout.partition is not None and isinstance(busy, list):
            struct.pack_into("<8I", data, layout.partition[0], *busy)
        self.content(gpu, "gpu_metrics", bytes(data))

    def file(self, gpu: int, path: str, text: str | None) -> None:
        """Set the text of a file below the device, or remove the file."""
        if text is None:
            (self._folder(gpu) / path).unlink()
        else:
            self.content(gpu, path, text.encode())

    def content(self, gpu: int, path: str, data: bytes) -> None:
        """Set the bytes of a file below the device, at once for every reader."""
        place = self._folder(gpu) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        new = self.folder / "new"
        new.write_bytes(data)
        new.rename(place)

    def errors(self, gpu: int, block: str, *, ue: int = 0, ce: int = 0, de: int = 0) -> None:
        """Set the counts of errors of a block."""
        self.file(gpu, f"ras/{block}_err_count", f"ue: {ue}\nce: {ce}\nde: {de}\n")

    def process(self, pid: int, gpu: int, memory: int) -> None:
        """Add a process with a compute queue on a GPU."""
        place = self.root / f"sys/class/kfd/kfd/proc/{pid}/vram_{self._gpu_id(gpu)}"
        self._write_text(place, f"{memory}\n")

    def library(self, name: str, *values: int, gpu: int | None = None, error: int | None = None) -> None:
        """Set the answer of a function of the library, of one GPU or of all."""
        fact = ("e", str(error)) if error is not None else ("u", " ".join(map(str, values)))
        self._put(self._who(gpu), name, fact)
        self._write()

    def event(self, gpu: int, kind: int, text: str = "") -> None:
        """Deliver an event of the library."""
        with (self.folder / "events").open("a") as file:
            file.write(f"{gpu} {kind} {text}\n")

    def _folder(self, gpu: int) -> Path:
        return self.root / "sys/bus/pci/devices" / self.pci(gpu)

    @staticmethod
    def _gpu_id(gpu: int) -> int:
        return 40000 + gpu

    def _device(self, gpu: int, device: int, memory: int, watts: int) -> None:
        self.table(gpu)
        texts = {
            "vendor": "0x1002", "device": f"{device:#06x}", "class": "0x120000",
            "unique_id": self.uuid(gpu).removeprefix("GPU-"), "serial_number": f"69241600{gpu:04}",
            "product_name": "AMD Instinct OAM", "product_number": "102-G30211-00",
            "vbios_version": "113-M3000100-102", "power/runtime_status": "active",
            "mem_info_vram_total": str(memory), "mem_info_vram_used": str(memory // 2),
            "mem_info_vis_vram_total": str(memory), "mem_info_vis_vram_used": str(memory // 2),
            "gpu_busy_percent": "97", "mem_busy_percent": "41",
            "current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16",
            "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16", "pcie_replay_count": "2",
            "current_compute_partition": "SPX", "current_memory_partition": "NPS1",
            "xgmi_physical_id": str(gpu), "ras/features": "feature mask: 0x1fff",
            "ras/gpu_vram_bad_pages": "", "pp_dpm_sclk": "0: 132Mhz\n1: 2100Mhz *\n2: 2100Mhz",
            "pp_dpm_mclk": "0: 900Mhz\n1: 1300Mhz *", "pp_dpm_vclk": "0: 29Mhz *\n1: 1403Mhz",
            "hwmon/hwmon3/name": "amdgpu", "hwmon/hwmon3/power1_input": "612000000",
            "hwmon/hwmon3/power1_cap": f"{watts}000000", "hwmon/hwmon3/power1_cap_min": "0",
            "hwmon/hwmon3/power1_cap_max": f"{watts}000000",
            "hwmon/hwmon3/power1_cap_default": f"{watts}000000",
            "hwmon/hwmon3/temp2_label": "junction", "hwmon/hwmon3/temp2_input": "52000",
            "hwmon/hwmon3/temp2_crit": "100000", "hwmon/hwmon3/temp2_emergency": "105000",
            "hwmon/hwmon3/temp3_label": "mem", "hwmon/hwmon3/temp3_input": "47000",
            "hwmon/hwmon3/temp3_crit": "105000",
        }  # fmt: skip
        for path, text in texts.items():
            self.file(gpu, path, f"{text}\n" if text else "")
        for block in BLOCKS:
            self.errors(gpu, block)

    def _topology(self) -> None:
        nodes = self.root / "sys/class/kfd/kfd/topology/nodes"
        (self.root / "sys/class/kfd/kfd/proc").mkdir(parents=True)
        self._write_text(nodes / "0/gpu_id", "0\n")
        for gpu in range(self._count):
            node = nodes / str(gpu + 1)
            bus = int(self.pci(gpu)[5:7], 16)
            self._write_text(node / "gpu_id", f"{self._gpu_id(gpu)}\n")
            self._write_text(node / "properties", f"simd_count 1216\nlocation_id {bus << 8}\ndomain 0\n")
            for number, peer in enumerate(each for each in range(self._count) if each != gpu):
                self._write_text(
                    node / f"io_links/{number}/properties", f"type 11\nnode_from {gpu + 1}\nnode_to {peer + 1}\n"
                )

    @staticmethod
    def _write_text(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
