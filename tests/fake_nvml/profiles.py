"""What a healthy GPU answers: the values that a `FakeDriver` starts with."""

from __future__ import annotations

from tests.fake_driver import Fact

MIB = 1 << 20


def _uint(*values: float) -> Fact:
    return "u", " ".join(str(value) for value in values)


def _ull(value: int) -> Fact:
    return "U", str(value)


H100: dict[str, Fact] = {
    "nvmlDeviceGetName": ("t", "NVIDIA H100 80GB HBM3"),
    "nvmlDeviceGetVbiosVersion": ("t", "96.00.89.00.01"),
    "nvmlDeviceGetInforomImageVersion": ("t", "G520.0200.00.05"),
    "nvmlDeviceGetBrand": _uint(14),
    "nvmlDeviceGetBoardPartNumber": ("t", "692-2G520-0200-000"),
    "nvmlDeviceGetArchitecture": _uint(9),
    "nvmlDeviceGetPowerUsage": _uint(412_345),
    "nvmlDeviceGetTemperature/0": _uint(61),
    "nvmlDeviceGetMarginTemperature": ("i", "26"),
    "nvmlDeviceGetClockInfo/0": _uint(1980),
    "nvmlDeviceGetClockInfo/1": _uint(1965),
    "nvmlDeviceGetClockInfo/2": _uint(2619),
    "nvmlDeviceGetClockInfo/3": _uint(1545),
    "nvmlDeviceGetMaxClockInfo/0": _uint(1980),
    "nvmlDeviceGetMaxClockInfo/1": _uint(1980),
    "nvmlDeviceGetMaxClockInfo/2": _uint(2619),
    "nvmlDeviceGetMaxClockInfo/3": _uint(1545),
    "nvmlDeviceGetPerformanceState": _uint(0),
    "nvmlDeviceGetCurrentClocksEventReasons": _ull(0x4),
    "nvmlDeviceGetUtilizationRates": _uint(97, 43),
    "nvmlDeviceGetEncoderUtilization": _uint(0, 100_000),
    "nvmlDeviceGetDecoderUtilization": _uint(3, 100_000),
    "nvmlDeviceGetJpgUtilization": _uint(0, 100_000),
    "nvmlDeviceGetOfaUtilization": _uint(0, 100_000),
    # total, reserved, free, used
    "nvmlDeviceGetMemoryInfo": _uint(81_559 * MIB, 551 * MIB, 20_000 * MIB, 61_008 * MIB),
    "nvmlDeviceGetMemoryInfo_v2": _uint(81_559 * MIB, 551 * MIB, 20_000 * MIB, 61_008 * MIB),
    # total, free, used
    "nvmlDeviceGetBAR1MemoryInfo": _uint(131_072 * MIB, 131_000 * MIB, 72 * MIB),
    "nvmlDeviceGetEnforcedPowerLimit": _uint(700_000),
    "nvmlDeviceGetPowerManagementLimit": _uint(700_000),
    "nvmlDeviceGetPowerManagementDefaultLimit": _uint(700_000),
    "nvmlDeviceGetPowerManagementLimitConstraints": _uint(200_000, 700_000),
    "nvmlDeviceGetTotalEnergyConsumption": _ull(123_456_789_012),
    "nvmlDeviceGetCurrPcieLinkGeneration": _uint(5),
    "nvmlDeviceGetMaxPcieLinkGeneration": _uint(5),
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": _uint(5),
    "nvmlDeviceGetCurrPcieLinkWidth": _uint(16),
    "nvmlDeviceGetMaxPcieLinkWidth": _uint(16),
    "nvmlDeviceGetEccMode": _uint(1, 1),
    "nvmlDeviceGetMigMode": _uint(0, 0),
    "nvmlDeviceGetRowRemapperHistogram": _uint(2560, 0, 0, 0, 0),
    # aggregate parity and SEC-DED, volatile parity and SEC-DED, threshold exceeded
    "nvmlDeviceGetSramEccErrorStatus": _uint(1, 2, 3, 4, 0),
    # state, health mask (global manager connected, partition assigned, nothing configured wrong,
    # bandwidth fine, no recovery, healthy, no timeout), summary, version, status, clique, each byte of the domain
    "nvmlDeviceGetGpuFabricInfoV": _uint(3, 0b01_01_0001_10_10_10_10, 1, 3, 0, 0, 0),
    "nvmlDeviceGetComputeRunningProcesses_v3": _uint(2),
    "nvmlDeviceGetSupportedEventTypes": _ull(0xFF9F),
    "nvmlDeviceRegisterEvents": _uint(1),
    "nvmlGpmSampleGet": _uint(1),
    "nvmlGpmMigSampleGet": _uint(1),
    "gpm": _uint(1),
    "gpm 1": ("d", "95"),
    "gpm 2": ("d", "91.5"),
    "gpm 3": ("d", "44"),
    "gpm 4": ("d", "16"),
    "gpm 5": ("d", "43.25"),
    "gpm 6": ("d", "0"),
    "gpm 7": ("d", "43"),
    "gpm 8": ("d", "0"),
    "gpm 9": ("d", "0.25"),
    "gpm 10": ("d", "61"),
    "gpm 11": ("d", "0"),
    "gpm 12": ("d", "21"),
    "gpm 13": ("d", "4"),
    "gpm 20": ("d", "1500"),
    "gpm 21": ("d", "2500.5"),
    "gpm 60": ("d", "120000"),
    "gpm 61": ("d", "130000"),
    **{f"gpm {62 + 2 * link}": ("d", "6666") for link in range(18)},
    **{f"gpm {63 + 2 * link}": ("d", "7222") for link in range(18)},
    # error counters: severity, period, location (SRAM)
    "nvmlDeviceGetMemoryErrorCounter/7": _ull(5),
    "nvmlDeviceGetMemoryErrorCounter/17": _ull(6),
    "nvmlDeviceGetMemoryErrorCounter/107": _ull(7),
    "nvmlDeviceGetMemoryErrorCounter/117": _ull(8),
    "field 91 0": _uint(18),
    "field 82 0": _uint(68),
    "field 83 0": _ull(123_456_789_012),
    "field 185 0": _uint(412_345),
    "field 186 0": _uint(433_210),
    "field 185 2": _uint(61_000),
    "field 186 2": _uint(62_000),
    "field 230 0": _uint(0),
    "field 74 0": _ull(7_015_000_000_000),
    "field 75 0": _ull(3_000_000_000),
    "field 269 0": _ull(0),
    "field 270 0": _ull(1_500_000_000),
    "field 271 0": _ull(0),
    "field 193 0": ("i", "-8"),
    "field 194 0": ("i", "-2"),
    "field 195 0": ("i", "0"),
    "field 196 0": ("i", "0"),
    "field 187 0": _uint(200_000),
    "field 188 0": _uint(700_000),
    "field 189 0": _uint(700_000),
    "field 190 0": _uint(700_000),
    "field 192 0": _uint(700_000),
    **{f"field {number} 0": _ull(0) for number in (*range(3, 7), 9, 10, 11, 12, *range(20, 24))},
    **{f"field {number} 0": _uint(0) for number in (45, 76, 77, 78, 79, 142, 143, 144, 145)},
    "field 94 0": _uint(147),
    "field 95 0": _uint(0),
    **{f"field {number} 0": _uint(0) for number in (169, *range(173, 184))},
    "field 197 0": _ull(987_654_321_000),
    "field 198 0": _ull(123_456_789_000),
    "field 138 4294967295": _ull(1_000_000),
    "field 139 4294967295": _ull(2_000_000),
    "field 138 *": _ull(55_555),
    "field 139 *": _ull(66_666),
    **{f"field {number} *": _ull(0) for number in (161, 162, 163, 213, 214, 215)},
}
"""An H100 SXM under load, 18 links to NVSwitches."""

GEFORCE: dict[str, Fact] = {
    key: value
    for key, value in H100.items()
    if not key.startswith(("field 138", "field 139", "field 1", "field 2", "field 3", "field 9"))
    and "Ecc" not in key
    and "Fabric" not in key
    and "Mig" not in key
    and "gpm" not in key.lower()
    and "Margin" not in key
    and key not in {"field 82 0", "nvmlDeviceGetMemoryErrorCounter/7"}
} | {
    "nvmlDeviceGetName": ("t", "NVIDIA GeForce RTX 4090"),
    "nvmlDeviceGetArchitecture": _uint(8),
    "nvmlDeviceGetFanSpeed": _uint(104),
    "nvmlDeviceGetTemperatureThreshold/0": _uint(98),
    "field 186 0": _uint(401_000),
    "field 142 0": _uint(0),
    "field 143 0": _uint(0),
    "field 144 0": _uint(0),
    "field 145 0": _uint(0),
}
"""A desktop board: no ECC, no links, no GPM, no memory temperature; row remaps answer zeros."""

GB300: dict[str, Fact] = H100 | {
    "nvmlDeviceGetName": ("t", "NVIDIA GB300"),
    "nvmlDeviceGetArchitecture": _uint(10),
    "nvmlDeviceGetRowRemapperHistogram": _uint(5952, 0, 0, 0, 0),
    # GUID of 8 bytes, serial of the chassis in 13, slot, tray, host, peer (a switch), module
    "nvmlDeviceGetPlatformInfo": _uint(
        *(0x3C, 0x6D, 0x66, 0x03, 0x00, 0x1B, 0x00, 0xFF), *b"1820000000002", 7, 3, 1, 1, 2
    ),
}
"""A GB300 in a rack of 72: the numbers of its place are bytes, of which most are control characters."""
