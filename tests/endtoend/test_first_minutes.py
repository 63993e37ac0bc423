"""README and docs/home.md, played in order as they are written, each to data on the screen; with what happens meanwhile.

docs/lab.md and docs/deploy.md have files of their own. What README shows beside this, each command alone, is typed by
`tests/packaging/test_wheel.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endtoend.pages import Machine, Network, by_night, commands, leave, needed, page, settings
from tests.endtoend.tmux import Terminal
from tests.kit.waiting import wait_until

pytestmark = [needed, pytest.mark.nightly]
README, HOME = page("README.md"), page("docs/home.md")
OURS = "http://127.0.0.1:9400"
HEAD = r"LIVE .* 1/1 nodes reporting +(http://[\d.]+:\d+)"
"""The header of a machine that reports, and its address."""
FORMERLY = "^rig +online .*formerly vm"
"""Row of the list of nodes: it went on under its new name."""
CHECKOUT = "~/checkout"
PASSWORD = "~/.local/state/kilowatch/meters.password"


def typed(text: str, word: str) -> str:
    """The one command of a page that has a word."""
    (found,) = (line for line in commands(text) if word in line)
    return found


def address(terminal: Terminal) -> str:
    """Wait for a machine's own data on the screen, of which each GPU has its power; return the address of its pages."""
    screen = terminal.wait(
        "LIVE",
        "GPUs 4/4 reporting",
        holds=lambda text: re.search(HEAD, text) and len(re.findall(r" \d+/575 W", text)) == 4,
    )
    found = re.search(HEAD, screen)
    assert found is not None
    return found[1]


def end(terminal: Terminal) -> None:
    """Leave the dashboard, after which nothing is lost."""
    leave(terminal)
    assert re.search(r"stored (\d+) of \1 frames|frames stored, 0 lost", terminal.screen), terminal.screen


def configure(machine: Machine, folder: str, text: str) -> None:
    """Write the settings of a page; the phone's service of this test has no certificate."""
    machine.type("cat > kilowatch.toml", folder, given=text.replace("https://ntfy.sh", "http://ntfy.sh"))


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path) as made, by_night():
        yield made


def test_readme_alone_ends_in_three_answers(network: Network) -> None:
    """Will my breaker trip, two nodes on a screen, a page on a phone; on a machine without a GPU."""
    desk = network.machine("desk", user="ann")
    network.call("ntfy.sh")
    first = desk.open("make run", CHECKOUT)
    assert address(first) == OURS
    assert "SIMULATED" in first.screen
    again = desk.open("make run", CHECKOUT)
    wait_until(lambda: again.ended, "a second one refuses")
    assert "is in use by another aggregator" in again.screen
    assert "kilowatch top" in again.screen
    end(first)
    with desk.taken(9400, 1883):
        moved = desk.open("make run", CHECKOUT)
        where = address(moved)
        assert where != OURS
        desk.type_until(typed(README, "status").replace("ADDRESS", where), "1/1 nodes reporting", CHECKOUT)
        desk.browse_until(where, "reported by 4 of 4 GPUs")
        end(moved)
        desk.type_until("pgrep -c python", "^0$")  # nothing outlives it

    answer = desk.type(typed(README, "plan --breaker"), CHECKOUT, codes=(1,))
    assert re.match(r"No: [\d.]+ A on a circuit that carries 16 A for hours; it may trip after \d+ s\.", answer)
    demo = desk.open(typed(README, "two-dgx-h100"), CHECKOUT)
    demo.wait("LIVE", "2/2 nodes reporting", "dgx-01", "dgx-02")
    end(demo)

    (phone,) = settings(README)
    configure(desk, CHECKOUT, phone)
    test = typed(README, "notify test phone")
    with network.phone() as taken:
        desk.unplug()
        run = desk.open(typed(README, "run --source"), CHECKOUT)
        address(run)
        run.wait("CRIT")
        assert "not delivered" in desk.type(test, CHECKOUT, codes=(1,))
        desk.plug_in()
        assert "phone: delivered" in desk.type(test, CHECKOUT)
        wait_until(
            lambda: any("office" in each["title"] and "TEST" not in each["title"] for each in taken), lambda: str(taken)
        )
        end(run)


def test_home_ends_in_data_on_the_screen(network: Network) -> None:
    """Another name after the first start, a cable that is out, a power cut, a plug that measures."""
    home = network.machine("vm", user="ann", KILOWATCH__COLLECTOR__SOURCE="simulated:desktop-4x5090")
    network.call("ntfy.sh")
    assert home.type(commands(HOME)[0], codes=(1,)).startswith("No: ")
    first = home.open(typed(HOME, "bin/kilowatch run"))
    assert address(first) == OURS
    end(first)

    written, plug = settings(HOME)
    configure(home, "~", written)
    home.type("umask 077; echo secret > mqtt.password")
    assert home.type(typed(HOME, "config check")) == "kilowatch.toml: ok\n"
    run = home.open("kilowatch run")
    assert address(run) == OURS
    run.wait("office", holds=lambda screen: re.search(r"office +\d+%", screen))
    home.type_until("kilowatch nodes list", FORMERLY)
    with network.phone() as taken:
        assert "phone: delivered" in home.type(typed(HOME, "notify test phone"))
        home.unplug()
        assert "not delivered" in home.type(typed(HOME, "notify test phone"), codes=(1,))
        address(run)
        home.plug_in()
        assert "phone: delivered" in home.type(typed(HOME, "notify test phone"))
    assert {each["topic"] for each in taken} == {"CHOOSE-A-LONG-RANDOM-NAME"}
    home.browse_until(f"{OURS}/nodes/rig", "4 x GeForce RTX 5090; online")

    home.cut_power()
    home.boot()
    network.connect(home)
    section, line = plug.splitlines()
    configure(home, "~", written.replace(section, f"{section}\n{line}"))
    run = home.open(typed(HOME, "--meters-port"))
    address(run)
    message = {
        "src": "plug-office",
        "dst": "plug-office/events",
        "method": "NotifyStatus",
        "params": {"ts": 0, "switch:0": {"id": 0, "apower": 2960.0, "voltage": 230.0, "current": 12.9}},
    }
    plugged = network.elsewhere(
        "tests.endtoend.plug",
        home.address,
        "1884",
        "meters",
        str(home.path(PASSWORD.replace("~", "/home/ann"))),
        given=json.dumps([["plug-office/events/rpc", json.dumps(message)]]),
    )
    try:
        home.type_until(typed(HOME, "kilowatch circuits"), "by plug, measured")
    finally:
        plugged.kill()
        plugged.wait()
    home.type_until("kilowatch nodes list", FORMERLY)
    end(run)
