"""Files of a GPU: read in the probe process, because the kernel may block a reader while a GPU resets.

A file that fails says something of itself (it is not there, or may not be read), or of its GPU: the driver
refuses all files of one in reset, and a GPU that has left the bus has none.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from telemetry.gap import GAP, Gap

REFUSED = frozenset({errno.EPERM, errno.EBUSY, errno.EAGAIN, errno.EIO, errno.ETIMEDOUT})
"""Errors of a GPU that is being reset, or whose firmware does not answer."""
GONE = frozenset({errno.ENODEV, errno.ENXIO})
_SIZE = 16384
DRIVER_FOLDER = "sys/bus/pci/drivers/amdgpu"
"""Folder of the GPUs that the driver drives; there while it is loaded."""
_SENSOR = re.compile(r"temp(\d+)_label")


class Answers:
    """How the files of one reading went."""

    def __init__(self) -> None:
        self.given = 0
        self.refused = 0
        self.gone = False


class DeviceFiles:
    """Files below one PCI device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers = Answers()
        self._kept: dict[str, bytes | Gap] = {}
        self._chip: Path | None = None
        self._sensors: dict[str, str] = {}

    def begin(self) -> None:
        """Begin a reading: each file is read once in it."""
        self.answers = Answers()
        self._kept = {}

    def there(self) -> bool:
        """Return whether the device is on the bus and the driver drives it."""
        return (self.folder / "driver").exists()

    def read(self, path: str) -> bytes | Gap:
        """Return the content of a file, or why there is none."""
        found = self._kept.get(path)
        if found is None:
            found = self._kept[path] = self._read(self.folder / path)
        return found

    def text(self, path: str) -> str | Gap:
        """Return the content of a file as text."""
        found = self.read(path)
        return found if isinstance(found, Gap) else found.decode("ascii", "replace").strip()

    def sensor(self, name: str) -> str | Gap:
        """Return the text of a file of the hwmon chip, by its name or by `temp:LABEL/WORD`."""
        if self._chip is None:
            self._find_chip()
        if self._chip is None:
            return Gap.NOT_SUPPORTED
        kind, _, rest = name.partition(":")
        if rest:
            label, _, word = rest.partition("/")
            number = self._sensors.get(label)
            if number is None:
                return Gap.NOT_SUPPORTED
            name = f"{kind}{number}_{word}"
        return self.text(f"{self._chip.relative_to(self.folder)}/{name}")

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none where it can't be listed."""
        try:
            return sorted(each.name for each in (self.folder / path).iterdir())
        except OSError:
            return []

    def _find_chip(self) -> None:
        for name in self.names("hwmon"):
            chip = self.folder / "hwmon" / name
            for each in self.names(f"hwmon/{name}"):
                if (match := _SENSOR.fullmatch(each)) is not None:
                    label = self.text(f"hwmon/{name}/{each}")
                    if not isinstance(label, Gap):
                        self._sensors[label] = match[1]
            self._chip = chip
            return

    def _read(self, path: Path) -> bytes | Gap:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(file, _SIZE)
            finally:
                os.close(file)
        except OSError as error:
            return self._failed(error.errno or 0)
        self.answers.given += 1
        return data

    def _failed(self, code: int) -> Gap:
        if code in GONE:
            self.answers.gone = True
            return Gap.DEVICE_LOST
        if code in REFUSED:
            self.answers.refused += 1
            return Gap.ERROR
        if code == errno.EACCES:
            return Gap.NO_PERMISSION
        if code == errno.ENOENT and not self.there():
            self.answers.gone = True
            return Gap.DEVICE_LOST
        if code in {errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTDIR}:
            return Gap.NOT_SUPPORTED
        return Gap.ERROR


def number_of(text: str | Gap) -> float:
    """Return the number of a text; a gap where there is none."""
    if isinstance(text, Gap):
        return GAP[text]
    try:
        return float(int(text, 0))
    except ValueError:
        return GAP[Gap.NOT_SUPPORTED if text.lower() in {"", "n/a", "unknown"} else Gap.ERROR]


def drives_gpus(root: Path) -> bool:
    """Return whether amdgpu drives a GPU. The folder is the kernel's own: listing it calls no driver."""
    try:
        return any(":" in each.name for each in (root / DRIVER_FOLDER).iterdir())
    except OSError:
        return False
