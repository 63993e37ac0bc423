"""A tar archive that puts a machine's files in their places: `tar -xpf NAME.tar -C /`. Pure.

The same files give the same bytes, so that an archive changes only with its content.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Member:
    """A file, folder or link of a machine."""

    path: str
    """Absolute path on the machine."""
    content: bytes | None = None
    """Of a file; None for a folder or a link."""
    mode: int = 0o644
    owner: str = ROOT
    link: str = ""
    """Target of a symbolic link."""


def archive(members: Iterable[Member]) -> bytes:
    """Return the archive of some members, in their order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member in members:
            info = tarfile.TarInfo(member.path.lstrip("/"))
            info.mode, info.uname, info.gname = member.mode, member.owner, member.owner
            if member.link:
                info.type, info.linkname = tarfile.SYMTYPE, member.link
            elif member.content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(member.content)
            tar.addfile(info, None if member.content is None else io.BytesIO(member.content))
    return out.getvalue()
