"""`circuits`, `report`, `power` and `plan` as people type them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from api.power import CircuitState, TripSeconds
from kilowatch.__main__ import main
from kilowatch.stack.demo_site import plugged
from kilowatch.text.circuits import bar, circuit_lines
from telemetry.wire.jobs import Allocation, Job, JobKey, NodeJobs
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import door
from tests.aggregator.test_http_circuits import lab
from tests.brokers import free_port

DGX = '[nodes.dgx-01]\nprofile = "dgx-h100"\n[nodes.dgx-02]\nprofile = "dgx-h100"\n'
RIG = '[nodes.rig]\ngpus = "4x RTX 5090"\nhost_price_usd = 4000\n'
OFFICE = "[power.circuits.office]\nbreaker = 20\nvolts = 120\nnodes = ['rig']\n" + RIG.replace("[", "[power.")


def kilowatch(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """The two published clusters."""
    for name, text in (("dgx.toml", DGX), ("rig.toml", RIG)):
        (tmp_path / name).write_text(text)
    return str(tmp_path / "dgx.toml"), str(tmp_path / "rig.toml")


@pytest.mark.parametrize("command", [("plan",), ("fit", "500W"), ("cap", "--circuit", "office", "--below", "900W")])
def test_a_time_zone_that_is_none_is_found_before_the_aggregator_finds_it(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    path = tmp_path / "power.toml"
    path.write_text(OFFICE + "[power.site]\ntimezone = 'Mars/Olympus'\n")
    result = kilowatch(*command, "--config", str(path))
    assert result.exit_code == 64, result.output
    assert "site.timezone: there is no time zone 'Mars/Olympus'" in result.output


@contextmanager
def served(view: FakeView | None = None) -> Iterator[str]:
    """An aggregator's HTTP with a view, else two circuits, in a thread of its own; yields its address."""
    address: list[str] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with door(await lab() if view is None else view) as client:
            address.append(client.url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_two_clusters_stand_side_by_side(files: tuple[str, str]) -> None:
    """Every published figure, and the verdict, in the two columns."""
    result = kilowatch("report", "--config", files[0], "--compare", files[1])
    assert result.exit_code == 0
    text = result.output
    for left, right in (
        ("16 x H100 SXM5 80GB; one kind", "4 x GeForce RTX 5090; one kind"),
        ("1,280 GB as 2 NVLink pools of 640 GB", "128 GB as 4 separate pools of 32 GB"),
        ("a cluster", "a pile of cards"),
        ("17,000 W sustained", "2,550 W sustained"),
        ("14.17 average homes of 1,200 W", "2.12 average homes of 1,200 W"),
        ("5 h 18 min to drain 90 kWh", "35 h 18 min to drain 90 kWh"),
        ("$700,000", "$11,996: $7,996 of GPUs + $4,000"),
    ):
        line = next(line for line in text.splitlines() if left in line)
        assert right in line.partition(left)[2]
    assert "is 58 times cheaper than" in text


def test_a_report_as_json_has_names_and_plain_numbers(files: tuple[str, str]) -> None:
    """By name, in base units."""
    result = kilowatch("report", "--config", files[0], "--compare", files[1], "--json")
    one, other = (json.loads(result.stdout)[name] for name in files)
    assert (one["memory_gb"], one["price_usd"], one["verdict"]) == (1280, 700_000, "cluster")
    assert (other["memory_gb"], other["prices"]["gpus"], other["verdict"]) == (128, 7996, "pile")
    assert round(other["times_cheaper"]) == 58
    assert other["pools"] == [[1, 32]] * 4


def test_the_order_of_comparing_does_not_change_who_is_cheaper(files: tuple[str, str]) -> None:
    """The dear one second."""
    result = kilowatch("report", "--config", files[1], "--compare", files[0])
    assert f"{files[1]} is 58 times cheaper than {files[0]}" in result.output


def test_a_running_cluster_is_reported_and_compared(files: tuple[str, str]) -> None:
    """By its address; the other may be a file."""
    with served() as url:
        result = kilowatch("report", "--http", url, "--compare", files[1])
    assert result.exit_code == 0, result.output
    assert "4 x NVIDIA H100 80GB HBM3" in result.output
    assert "4 x GeForce RTX 5090" in result.output
    assert "measured" in result.output


@pytest.mark.parametrize(
    ("more", "noted"),
    [
        ("", True),
        ("[broker]\nhost = '127.0.0.1'\n", True),
        ("[broker]\nhost = '10.0.0.2'\n", False),
        ("[power]\nmeter_broker = 'house'\n[power.brokers.house]\nhost = '10.0.0.2'\n", False),
        ("[power.meters.plug]\nbroker = 'house'\n[power.brokers.house]\nhost = '10.0.0.2'\n", False),
    ],
    ids=["none", "loopback", "the network's", "one of all meters", "its own"],
)
def test_a_check_says_which_meters_no_device_on_the_network_can_reach(tmp_path: Path, more: str, noted: bool) -> None:
    """Kilowatch's own broker is one of this machine alone."""
    file = tmp_path / "kilowatch.toml"
    plug = "type = 'tasmota'\ntopic = 'tele/plug/SENSOR'\non = 'office'\n"
    head, own = "[power.meters.plug]\n", more.startswith("[power.meters.plug]")
    file.write_text(OFFICE + (more.replace(head, head + plug) if own else more + head + plug))
    found = kilowatch("power", "check", str(file))
    assert found.exit_code == 0, found.output
    assert ("meters.plug: no broker is named" in found.output) is noted
    assert ("--meters-port" in found.output) is noted


def test_circuits_are_a_tree_with_bars_limits_and_a_band() -> None:
    """And the words that make a time an estimate."""
    with served() as url:
        result = kilowatch("circuits", url)
        assert kilowatch("circuits", "--http", url).stdout.splitlines()[1:3] == result.stdout.splitlines()[1:3]
        whole = json.loads(kilowatch("circuits", "--http", url, "--json").stdout)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[1].startswith("main  ")
    two = next(n for n, line in enumerate(lines) if line.startswith("└─ lab/2"))
    assert "107%" in lines[two]
    assert "L1 21.3 L2 21.3 N" in lines[two]
    below = "\n".join(lines[two : two + 8])
    assert "continuous limit 16 A, breaker 20 A\n" in below
    assert "last 10 s 5.1 kW, headroom -1.3 kW (-5.3 A)" in below
    assert "may trip in" in below
    assert ".. never at this load (estimate)" in below
    assert "now 5.1 kW ± 205 W by bmc" in below
    assert "(E03)" in below
    assert lines[-1] == "Times are estimates; a breaker may trip earlier or later."
    assert any(line.startswith("budget all") for line in lines)
    assert {c["id"] for c in whole["circuits"]} == {"main", "lab/1", "lab/2"}
    assert whole["power"]["configured"]


def test_circuits_that_can_not_be_computed_are_said_not_to_be_monitored() -> None:
    """In place of an empty list."""
    view = asyncio.run(lab())
    view.electrical.latest, view.electrical.failure = None, "a fault of kilowatch's own, ValueError"
    with served(view) as url:
        text = kilowatch("circuits", url).stdout
        whole = json.loads(kilowatch("circuits", url, "--json").stdout)
    said = "! no circuit, budget or UPS is monitored: a fault of kilowatch's own, ValueError"
    assert said in text.splitlines()
    assert whole["power"]["failure"] == view.electrical.failure


def test_what_alone_can_not_be_computed_is_said_above_the_others() -> None:
    """The circuits follow."""
    view = asyncio.run(lab())
    view.electrical._aside.fail("meter/plug", IndexError("index 1 is out of bounds"), view.now())
    with served(view) as url:
        text = kilowatch("circuits", url).stdout
    said = "! meter plug can't be computed, and the others go on: IndexError: index 1 is out of bounds"
    assert said in text.splitlines()
    assert "lab/1" in text


def test_what_if_is_asked_of_a_running_cluster() -> None:
    """The same words as for a file."""
    with served() as url:
        result = kilowatch("plan", "--http", url, "--move", "n2=lab/1", "--json")
        wrong = kilowatch("plan", "--http", url, "--lose", "lab/9")
    found = {c["id"]: c for c in json.loads(result.stdout)["circuits"]}
    assert found["lab/1"]["watts"] == pytest.approx(10_247, abs=2)
    assert wrong.exit_code == 3
    assert "lab/9" in wrong.output


def test_caps_by_job_name_the_job_on_each_gpu_of_a_running_cluster() -> None:
    """The free GPU first; refused while no node says who holds what, and for a file, which has no jobs."""
    view = asyncio.run(lab())
    one, two = (gpu.uuid for gpu in view.fleet.nodes["n2"].inventory.gpus)
    asked = ("cap", "--circuit", "lab/2", "--below", "4900W", "--by", "job", "--http")
    with served(view) as url:
        refused = kilowatch(*asked, url)
        key = JobKey("slurm", "lab", "4711")
        message = NodeJobs(
            session=7,
            version=1,
            at=view.wall(),
            jobs=(Job(key=key, user="ada"),),
            allocations=(Allocation(job=key, gpu=one, begin=1),),
        )
        view.jobs.receive("n2", msgspec.json.encode(message), {one, two}, view.wall())
        found = kilowatch(*asked, url)
        whole = json.loads(kilowatch(*asked, url, "--json").stdout)
    assert refused.exit_code == 3, refused.output
    assert "who holds which GPU is not known" in refused.output
    assert found.exit_code == (0 if whole["met"] else 1), found.output
    rows = [line for line in found.output.splitlines() if line.startswith("n2 ")]
    assert [line.split("GPU ")[1][0] for line in rows] == ["1", "0"]
    assert [line.endswith("slurm 4711 of ada") for line in rows] == [False, True]
    assert "nothing was applied" in found.output


def test_power_check_counts_parts_and_notes_probable_mistakes(tmp_path: Path) -> None:
    """Notices are no errors."""
    path = tmp_path / "site.toml"
    path.write_text(OFFICE)
    result = kilowatch("power", "check", str(path))
    assert (result.exit_code, result.output) == (0, f"{path}: ok: circuits 1, nodes 1\n")
    path.write_text(OFFICE + "[power.nodes.lonely]\nwatts = 100\n")
    assert "note (E24): nodes.lonely: it hangs on no circuit" in kilowatch("power", "check", str(path)).output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[circuits.a]\nbreaker = '15 amps'\n", 'Write 15 or "15A"'),
        ("[circuits.a]\nbreaker = 15\nparent = 'b'\n[circuits.b]\nbreaker = 20\nparent = 'a'\n", "it feeds itself"),
        ("[circuits.a]\nbreaker = 15\n[circuits.b]\nbreaker = 20\nparent = 'a'\n", "15 A"),
        ("[circuits.a]\nbreaker = 15\n[nodes.n]\ncords = [{circuit = 'a', share = 0.4}]\n", "add up to 0.4"),
        ("[circuits.a]\nbreaker = 15\n[nodes.n]\ncords = [{circuit = 'aa'}]\n", "'aa'"),
        ("circuits = 3\n", "circuits"),
        ("[power.circuits.a]\nbreaker = 15\n[circuits.b]\nbreaker = 15\n", "outside [power]"),
        ("", "there is nothing in it"),
    ],
)
def test_a_mistake_is_one_line_with_place_and_cure(tmp_path: Path, text: str, words: str) -> None:
    """Exit code 64, no traceback."""
    path = tmp_path / "site.toml"
    path.write_text(text)
    result = kilowatch("power", "check", str(path))
    assert result.exit_code == 64
    assert words in result.stderr
    assert str(path) in result.stderr


def test_settings_with_bad_circuits_do_not_start_a_service(tmp_path: Path) -> None:
    """`aggregate` and `config check` name the file."""
    path = tmp_path / "k.toml"
    path.write_text("[power.circuits.office]\nbreaker = '15 amps'\n")
    for command in (("aggregate",), ("config", "check"), ("run", "--no-ui")):
        result = kilowatch(*command, "--config", str(path))
        assert result.exit_code == 64
        assert f"{path}: circuits.office.breaker" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan",), "--config"),
        (("plan", "--http", "127.0.0.1:1", "--preload", "0.5"), "--preload is for --config"),
        (("report", "--config", "a.toml", "--http", "x"), "Give --config or --http"),
        (("report", "--config", "a.toml", "--compare", "a.toml"), "the same cluster"),
        (("report", "--config", "none.toml"), "there is no such file"),
    ],
)
def test_a_command_that_is_not_clear_is_exit_code_64(arguments: tuple[str, ...], words: str) -> None:
    """With the cure."""
    result = kilowatch(*arguments)
    assert result.exit_code == 64
    assert words in result.output + result.stderr


def test_an_unreachable_aggregator_is_an_error_with_its_address() -> None:
    """Exit code 3: nothing is wrong with what was typed."""
    result = kilowatch("circuits", "--http", f"127.0.0.1:{free_port()}")
    assert result.exit_code == 3
    assert "no aggregator answers" in result.output


def test_the_only_machine_need_not_be_named() -> None:
    """A single circuit without any node is this machine's; with any name nothing is guessed."""
    one = {"circuits": {"office": {"breaker": 15}}}
    assert plugged(one, "rig1")["circuits"] == {"office": {"breaker": 15, "nodes": ["rig1"]}}
    named = {"circuits": {"office": {"breaker": 15, "nodes": ["other"]}}}
    assert plugged(named, "rig1") == named
    two = {"circuits": {"a": {"breaker": 15}, "b": {"breaker": 15}}}
    assert plugged(two, "rig1") == two


def state(ratio: float | None, **more: object) -> CircuitState:
    """A 20 A circuit at some load."""
    never = TripSeconds(earliest=None, nominal=None, latest=None)
    fields = dict.fromkeys(CircuitState.__struct_fields__) | {
        "id": "c", "kind": "circuit", "wiring": "single", "volts": 120.0, "amps": {"L1": 1.0},
        "rated_amps": 20.0, "continuous_amps": 16.0, "load_ratio": ratio, "trip_known": True,
        "trip_seconds": never, "nodes": [], "alerts": [], "facts": {}, "more": {},
    }  # fmt: skip
    return CircuitState(**{**fields, **more})  # type: ignore[arg-type]  # a short form for tests


def test_a_bar_has_a_mark_at_the_continuous_limit_and_a_sign_of_overload() -> None:
    """A quarter, just above the limit, above the rating, and none."""
    assert bar(state(0.25)) == "██████·············│···· "
    assert bar(state(0.85)).count("┃") == 1
    assert bar(state(1.2)).endswith(">")
    assert "no reading yet" in circuit_lines([state(None)])[0]
