"""Facts about a machine for people: they go into the inventory."""

from __future__ import annotations

from pathlib import Path


def _text(path: Path) -> str:
    """Return what a small file says, "" when it isn't there or isn't for us."""
    try:
        return path.read_text(errors="replace").strip("\0\n ")
    except OSError:
        return ""


def _value(text: str, key: str, separator: str) -> str:
    """Return what stands behind the first `key` in lines of `key separator value`."""
    for line in text.splitlines():
        word, found, rest = line.partition(separator)
        if found and word.strip() == key:
            return rest.strip().strip('"')
    return ""


def facts(root: Path = Path("/")) -> dict[str, str]:
    """Return host name, kernel, operating system, CPU, product and serial number, as far as this
    process may know them (serial numbers are root's)."""
    cpuinfo = _text(root / "proc/cpuinfo")
    dmi = root / "sys/class/dmi/id"
    found = {
        "hostname": _text(root / "proc/sys/kernel/hostname"),
        "kernel": _text(root / "proc/sys/kernel/osrelease"),
        "os": _value(_text(root / "etc/os-release"), "PRETTY_NAME", "="),
        "cpu": _value(cpuinfo, "model name", ":") or _value(cpuinfo, "Model", ":"),
        "cpus": str(cpuinfo.count("processor\t:") or ""),
        "vendor": _text(dmi / "sys_vendor"),
        # boards without DMI (Arm) name themselves in the device tree
        "product": _text(dmi / "product_name") or _text(root / "proc/device-tree/model"),
        "serial": _text(dmi / "product_serial"),
    }
    return {key: value for key, value in found.items() if value}
