"""Newcomers at machines of their own, who type what a page says: README, docs/home.md, docs/lab.md, docs/deploy.md.

    with Network(folder) as network:
        desk = network.machine("desk", user="ann")
        screen = desk.open("kilowatch run")         # on a terminal: its cells are `screen.screen`
        desk.type("kilowatch status")               # what it printed
        desk.unplug(), desk.plug_in()

A machine is this one's files with all that it writes set aside (an overlay), and its own processes, host name and
network: an empty home, every port free, `/etc` and `/var` to write into, a cable to pull. So nothing that a page
says needs another path or port here. What a page installs is there already, as a script that starts this
checkout: `pip install` is played in `test_deploy_page.py`. In place of systemd
there is what INSTALL.md has in its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.endtoend.tmux import TMUX, Terminal
from tests.kit.night import NIGHT
from tests.kit.waiting import FACTOR, wait_until
from tests.web.browser import CHROMIUM

ROOT = Path(__file__).parents[2]
ROOTS_HOME = pwd.getpwuid(0).pw_dir
SECONDS = 120.0
USER = 1000
"""Id of a user that is not root."""
_PATH = f"/usr/local/bin{os.pathsep}{os.environ['PATH']}"
"""Programs that the pages install come first: an environment that is activated here may have a kilowatch of its own."""
_NEW_NETWORK = 0x40000000
_NAMESPACES = ("--net", "--mount", "--pid", "--uts")
_TOOLS = ("unshare", "nsenter", "ip", "mount", "chroot", "setpriv")
_ADDRESS = "198.51.100.{}"
"""Of a machine, by its number; 1 is the rest of the world."""

needed = pytest.mark.skipif(
    (os.geteuid() != 0 or TMUX is None or CHROMIUM is None or any(shutil.which(each) is None for each in _TOOLS))
    and not os.environ.get("CI"),
    reason="needs root, for machines of its own, and tmux, chromium and iproute2: sudo sh deploy/packages.sh",
)

_MACHINE = r"""
set -e
mount -t overlay overlay -o "lowerdir=/,upperdir=$files/up,workdir=$files/work" "$files/root"
mount -t proc proc "$files/root/proc"
mount --rbind /sys "$files/root/sys"
mount --rbind /dev "$files/root/dev"
for each in $shown; do mkdir -p "$files/root$each"; mount --bind "$each" "$files/root$each"; done
hostname "$name"
ip link set lo up
echo ready
exec sleep infinity
"""
_SCRIPT = f"""#!/bin/sh
PYTHONPATH={ROOT} exec {sys.executable} -m kilowatch "$@"
"""
_SYSTEMCTL = r"""#!/bin/sh
# As far as the pages need systemd: by the table of INSTALL.md, which has in the foreground what each unit does.
[ "$1" = daemon-reload ] && exit
for name; do :; done
pid=/run/$name.pid
[ "$1" = reload ] && exec kill -HUP "$(cat $pid)"
if [ -e $pid ]; then
    kill "$(cat $pid)" 2>/dev/null
    while [ -e "/proc/$(cat $pid)/exe" ]; do sleep 0.05; done  # none of a process that has ended
fi
[ "$1" = stop ] && exit
command=$(sed -n "s/^| .systemctl [a-z -]* $name. | .\(.*\). |/\1/p" ~/INSTALL.md | grep -v "^kill")
setsid sh -c "echo \$\$ >$pid; exec ${command:?}" </dev/null >>/var/log/$name.log 2>&1 &
"""
_PLACES = ("usr/local/bin", "opt/kilowatch/bin", "home/ann/kilowatch/bin", "home/ann/checkout/.venv/bin")
"""Places in which the pages install: on the path, in a hall or lab, at home, in a checkout of the README."""


def page(name: str) -> str:
    """Return the text of a page."""
    return (ROOT / name).read_text(encoding="utf-8")


def commands(text: str, beginning: str = "") -> list[str]:
    """Return the lines of a page's blocks, fenced as `sh` or indented, without the remarks at their ends."""
    fenced = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    lines = fenced.splitlines() if fenced else re.findall(r"(?m)^ {4}(\S.*)$", text)
    typed = [re.sub(r"\s+# .*", "", line).strip() for line in lines]
    return [line for line in typed if line.startswith(beginning)]


def settings(text: str) -> list[str]:
    """Return the settings of a page, block by block: fenced as `toml`."""
    return re.findall(r"```toml\n(.*?)```", text, re.DOTALL)


def leave(terminal: Terminal) -> None:
    """End a dashboard, and with it what it has started."""
    terminal.press("q")
    wait_until(lambda: terminal.ended is not None, "the end")
    assert terminal.ended == 0, terminal.screen


class Machine:
    """One of them. `environment` is that of every command: which GPUs it has, for instance."""

    def __init__(self, folder: Path, number: int, name: str, user: str, environment: Mapping[str, str]) -> None:
        self.number, self.name, self.address = number, name, _ADDRESS.format(number)
        self._files = folder / name
        self._terminals: list[Terminal] = []
        self.first = 0
        """Process of the machine that has the number 1 there."""
        for each in ("up", "work", "root"):
            (self._files / each).mkdir(parents=True)
        self._user = user
        self.home = Path("/home") / user if user != "root" else Path("/root")
        self.environment = {
            "HOME": str(self.home), "USER": user, "PATH": _PATH, "TERM": "xterm-256color",
            "LANG": "C.UTF-8", **environment,
        }  # fmt: skip
        self.boot()
        self._install()

    def boot(self) -> None:
        """Start it, also again, with the files that it had."""
        shown = {str(each) for each in (ROOT, Path(sys.prefix), Path(sys.base_prefix))}
        self._holder = _hold(
            *_NAMESPACES,
            "--fork",
            "--kill-child",
            script=_MACHINE,
            files=str(self._files),
            name=self.name,
            shown=" ".join(sorted(shown)),
        )
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        (self.first,) = map(int, children.read_text().split())

    def _install(self) -> None:
        for each in ("/etc/kilowatch", "/var/lib/kilowatch", "/var/lib/kilowatch-data", f"{ROOTS_HOME}/.local/state"):
            shutil.rmtree(self.path(each), ignore_errors=True)  # of this machine itself
        for place in _PLACES:
            script = self.path(f"/{place}/kilowatch")
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(_SCRIPT)
            script.chmod(0o755)
        systemctl = self.path("/usr/local/bin/systemctl")
        systemctl.write_text(_SYSTEMCTL)
        systemctl.chmod(0o755)
        checkout = self.path("/home/ann/checkout")
        for name in ("pyproject.toml", "constraints.txt", "Makefile"):
            shutil.copy(ROOT / name, checkout)
        (checkout / ".venv/.installed").touch()  # `make setup` has been played
        self.path("/etc/machine-id").write_text(f"{self.number:032x}\n")
        self.path(ROOTS_HOME).chmod(0o755)  # where Python itself may lie
        for each in self.path("/home/ann").rglob("*"):
            os.chown(each, USER, USER)
        os.chown(self.path("/home/ann"), USER, USER)

    def path(self, there: str) -> Path:
        """Return where a file of the machine lies here; written only before or by what runs there."""
        return Path(f"/proc/{self.first}/root{self._files}/root{there}")

    def words(self, command: str, folder: str = "") -> list[str]:
        """Return what types a command there, in a folder [home]."""
        user = [] if self._user == "root" else ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        environment = [f"{name}={value}" for name, value in self.environment.items()]
        return [
            "nsenter", "--target", str(self.first), *_NAMESPACES, "--", "chroot", f"{self._files}/root", *user, "env", "-i",
            *environment, "sh", "-c", f"cd {folder or self.home} && {command}",
        ]  # fmt: skip

    def type(self, command: str, folder: str = "", codes: tuple[int, ...] = (0,), given: str = "") -> str:
        """Type a command, and return what it printed, errors too. `given`: its standard input."""
        done = subprocess.run(
            self.words(command, folder),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            input=given,
            timeout=SECONDS * FACTOR,
        )
        assert done.returncode in codes, f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def open(self, command: str, folder: str = "", size: tuple[int, int] = (160, 50)) -> Terminal:
        """Type a command on a terminal of its own."""
        place = self._files / f"terminal-{len(self._terminals)}"
        place.mkdir()
        self._terminals.append(Terminal(place, self.words(command, folder), size))
        return self._terminals[-1]

    def receive(self, other: Machine, *files: str) -> None:
        """Copy files of another machine's home, or of a folder there, into the home of this one."""
        for each in files:
            shutil.copy(other.path(f"{other.home}/{each}"), self.path(str(self.home)))

    def type_until(self, command: str, pattern: str, folder: str = "") -> None:
        """Type a command again until what it prints has a pattern, as a person does who looks once more."""
        found = ""

        def there() -> bool:
            nonlocal found
            found = self.type(command, folder, codes=(0, 1, 2, 3))
            return re.search(pattern, found, re.MULTILINE) is not None

        wait_until(there, lambda: f"{pattern} of {command}:\n{found}", SECONDS, every=1.0)

    def browse_until(self, url: str, pattern: str) -> None:
        """Open a page in a browser of this machine again until its DOM, once its scripts have run, has a pattern."""
        flags = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage --no-proxy-server"
        self.type_until(
            f"{CHROMIUM} {flags} --user-data-dir=/tmp/browser --dump-dom {shlex.quote(url)} 2>/dev/null", pattern
        )

    def unplug(self) -> None:
        """Pull the cable."""
        _ip(self.first, "link set cable down")

    def plug_in(self) -> None:
        """Put it in again."""
        _ip(self.first, "link set cable up")

    @contextlib.contextmanager
    def taken(self, *ports: int) -> Iterator[None]:
        """Let another program listen on ports of the machine meanwhile."""
        with contextlib.ExitStack() as held:
            for port in ports:
                held.enter_context(_listening(self.first, port))
            yield

    def cut_power(self) -> None:
        """End all that runs there, at once."""
        for each in self._terminals:
            each.close()
        self._holder.kill()  # and, by `--kill-child`, its first process, and so all others there
        self._holder.wait()


class Network:
    """Machines on one switch, where the rest of the world is too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._machines: list[Machine] = []
        self._switch = _hold("--net", script="echo ready; exec sleep infinity")
        for each in (
            "link set lo up",
            "link add switch type bridge",
            f"addr add {_ADDRESS.format(1)}/24 dev switch",
            "link set switch up",
        ):
            _ip(self._switch.pid, each)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._machines:
            each.cut_power()
        self._switch.kill()
        self._switch.wait()

    def machine(self, name: str, user: str = "root", **environment: str) -> Machine:
        """Put a machine on the switch, whose name all others know."""
        number = len(self._machines) + 2
        made = Machine(self._folder, number, name, user, environment)
        self._machines.append(made)
        self.connect(made)
        return made

    def connect(self, machine: Machine) -> None:
        """Lay the cable of a machine that has been started."""
        port = f"port{machine.number}"
        with contextlib.suppress(subprocess.CalledProcessError):  # that of before a power cut, where it is there still
            _ip(self._switch.pid, f"link delete {port}")
        _ip(machine.first, f"link add cable type veth peer name {port} netns {self._switch.pid}")
        _ip(self._switch.pid, f"link set {port} master switch up")
        _ip(machine.first, f"addr add {machine.address}/24 dev cable")
        machine.plug_in()

    def call(self, name: str, machine: Machine | None = None) -> None:
        """Let all machines know a name as that of one of them [of the rest of the world]."""
        address = _ADDRESS.format(1) if machine is None else machine.address
        for each in self._machines:
            with each.path("/etc/hosts").open("a") as hosts:
                hosts.write(f"{address} {name}\n")

    def elsewhere(self, *words: str, given: str = "") -> subprocess.Popen[str]:
        """Start a program of this checkout in the rest of the world."""
        command = ["nsenter", "--target", str(self._switch.pid), "--net", "--", sys.executable, "-m", *words]
        started = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, text=True)
        assert started.stdin is not None
        started.stdin.write(given)
        started.stdin.close()
        return started

    @contextlib.contextmanager
    def phone(self) -> Iterator[Phone]:
        """Run the service of a phone in the rest of the world, on port 80."""
        taken: list[dict[str, Any]] = []

        class Take(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("", 80), Take, bind_and_activate=False)
        server.socket.close()
        server.socket = _listening(self._switch.pid, 80)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield taken
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


Phone = list[dict[str, Any]]
"""Messages that it has received, oldest first."""


def _hold(*namespaces: str, script: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a script in namespaces of its own, which says that it is ready, and holds them until it is killed."""
    held = subprocess.Popen(
        ["unshare", *namespaces, "sh", "-c", script],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert held.stdout is not None
    with held.stdout:
        assert held.stdout.readline() == b"ready\n", "no overlay, or no namespace, can be made here"
    return held


def _ip(process: int, words: str) -> None:
    """Change the network of a process."""
    subprocess.run(
        ["nsenter", "--target", str(process), "--net", "--", "ip", *words.split()], check=True, capture_output=True
    )


def _listening(process: int, port: int) -> socket.socket:
    """Return a socket that listens in the network of a process: it stays there, wherever it is used."""
    made: list[socket.socket] = []

    def listen() -> None:
        with Path(f"/proc/{process}/ns/net").open() as network:
            assert ctypes.CDLL(None).setns(network.fileno(), _NEW_NETWORK) == 0  # of this thread alone
        made.append(socket.create_server(("", port)))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    return made[0]


@contextlib.contextmanager
def hogs() -> Iterator[None]:
    """Keep every processor busy meanwhile, as other people's work does."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def by_night() -> contextlib.AbstractContextManager[None]:
    """Keep every processor busy in the long form of a test alone: in the gate one start is enough."""
    return hogs() if os.environ.get(NIGHT) else contextlib.nullcontext()
