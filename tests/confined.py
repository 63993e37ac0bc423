"""Run a command under the restrictions of a systemd unit, as far as a process can take them on itself.

    python -m tests.confined UNIT STATE COMMAND...

What root can do without systemd: the mount namespace (read-only but for STATE, private /dev, /proc),
capabilities, no new privileges, umask, the filter of system calls, address families, namespaces, and
memory that is never writable and executable. What is left out: cgroup limits, user namespaces, keyrings.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from pathlib import Path

UNIT = dict[str, list[str]]
NOBODY = 65534
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
CAPABILITIES = {"CAP_SYSLOG": 34}
NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_MDWE = 24, 38, 65
_ALLOW, _EPERM, _ENOSYS, _EAFNOSUPPORT = 0x7FFF0000, 0x00050001, 0x00050026, 0x00050061
_EQ, _MASKED_EQ = 4, 7


def settings_of(*files: Path) -> UNIT:
    """The settings of [Service], each with all its values; an empty value resets those before."""
    found: UNIT = {}
    for file in files:
        for line in file.read_text().splitlines():
            name, _, value = line.partition("=")
            if line[:1] in {"#", "[", ""}:
                continue
            values = found.setdefault(name, [])
            values.append(value) if value else values.clear()
    return found


def calls_of(groups: list[str]) -> set[str]:
    """The system calls of a filter such as `@system-service` and `~@privileged`, in this order."""
    found: set[str] = set()
    for line in groups:
        minus, names = line.startswith("~"), line.removeprefix("~").split()
        calls = {call for name in names for call in _expand(name)}
        found = found - calls if minus else found | calls
    return found


def _expand(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    text = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True
    ).stdout
    members = [line.strip() for line in text.splitlines()[1:]]
    return {call for each in members if each and each[0] != "#" for call in _expand(each)}


class _Compare(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class Filter:
    """A filter of system calls, loaded with libseccomp."""

    def __init__(self, default: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(default)))

    def add(self, action: int, call: str, *when: _Compare) -> None:
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            compares = (_Compare * max(1, len(when)))(*when)
            code = self._library.seccomp_rule_add_array(
                self._context, ctypes.c_uint32(action), number, len(when), compares
            )
            assert code == 0, (call, code)

    def load(self) -> None:
        code = self._library.seccomp_load(self._context)
        assert code == 0, code


def confine_files(unit: UNIT, state: Path) -> None:
    """Take on ProtectSystem=strict, PrivateDevices and what hides /proc."""
    _call("unshare", 0x00020000)
    _mount("--make-rprivate", "/")
    _mount("--bind", str(state), str(state))
    if unit.get("PrivateDevices") == ["yes"]:
        for name in DEVICES:
            (state / f"dev-{name}").touch()
            _mount("--bind", f"/dev/{name}", str(state / f"dev-{name}"))
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/dev")
        for name in DEVICES:
            Path("/dev", name).touch()
            _mount("--bind", str(state / f"dev-{name}"), f"/dev/{name}")
    if unit["ProtectSystem"] == ["strict"]:
        _mount("-o", "remount,bind,ro", "/")
    if unit.get("ProcSubset") == ["pid"]:
        _mount("-t", "proc", "-o", "subset=pid,hidepid=invisible", "proc", "/proc")


def confine_process(unit: UNIT, calls: set[str], user: int, capabilities: int) -> None:
    """Take on what needs no file: user, capabilities, system calls, memory."""
    families = {FAMILIES[name] for name in unit["RestrictAddressFamilies"][0].split()}
    kept = {CAPABILITIES[name] for name in unit["CapabilityBoundingSet"]}
    os.umask(int(unit["UMask"][0], 8))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in set(range(capabilities)) - kept:
        _call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if unit["MemoryDenyWriteExecute"] == ["yes"]:
        _call("prctl", _PR_SET_MDWE, 1, 0, 0, 0)
    others = Filter(_ALLOW)
    for family in set(range(46)) - families:
        others.add(_EAFNOSUPPORT, "socket", _Compare(0, _EQ, family, 0))
    for flag in NAMESPACES if unit["RestrictNamespaces"] == ["yes"] else ():
        others.add(_EPERM, "clone", _Compare(0, _MASKED_EQ, flag, flag))
        others.add(_EPERM, "unshare", _Compare(0, _MASKED_EQ, flag, flag))
    others.add(_ENOSYS, "clone3")
    only = Filter(_EPERM)
    for call in calls | {"execve", "exit", "exit_group", "rt_sigreturn", "seccomp"}:
        only.add(_ALLOW, call)
    others.load()
    only.load()


def user_for(program: str) -> int:
    """A user without rights who may run a program, or root where nobody else may: without any
    capability it is a user like others."""
    closed = [parent for parent in Path(program).resolve().parents if not parent.stat().st_mode & 1]
    return 0 if closed else NOBODY


def main() -> None:
    """Confine this process, then become the command."""
    state, command = Path(sys.argv[2]), sys.argv[3:]
    unit = settings_of(*map(Path, sys.argv[1].split(":")))
    user, calls = user_for(sys.executable), calls_of(unit["SystemCallFilter"])
    capabilities = int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1
    for path in (state, *state.rglob("*")):
        os.chown(path, user, user)
    confine_files(unit, state)
    confine_process(unit, calls, user, capabilities)
    os.execv(command[0], command)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _call(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}{arguments}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
