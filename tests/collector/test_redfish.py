"""A node's controller over Redfish: a real service with TLS and sessions, in both schemas, slow, wrong and gone."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from collector.config import BmcConfig, CollectorConfig
from collector.host import Host, bmc, programs, redfish
from collector.host.bmc_log import BmcLog, BmcLogEntry, elist, used
from collector.host.parts import PartLog
from collector.host.programs import UnknownError
from collector.host.redfish import RedfishBmc
from telemetry.errors import ConfigError
from telemetry.gap import Gap, reason_of
from tests.aggregator.redfish_server import (
    V1,
    Redfish,
    Tree,
    at,
    certificate_in,
    collection,
    old_server,
    server,
    serving,
)
from tests.collector.node_trees import AC_LOST, SEL, SEL_INFO
from tests.collector.test_host_hardware import readings
from tests.kit.waiting import FACTOR

SUPPLY = f"{V1}/Chassis/1/PowerSubsystem/PowerSupplies/0"
FANS = "Chassis/1/ThermalSubsystem/Fans"
ENTRIES = "Managers/BMC/LogServices/SEL/Entries"


def status(health: str | None = "OK", state: str = "Enabled") -> dict[str, Any]:
    return {"State": state, "Health": health}


def entry(number: int, text: str, severity: str = "OK", **more: Any) -> dict[str, Any]:
    """An entry of a log, as DSP0266's LogEntry."""
    return {
        "@odata.id": f"{V1}/{ENTRIES}/{number}", "@odata.type": "#LogEntry.v1_16_0.LogEntry", "Id": str(number),
        "EntryType": "SEL", "Severity": severity, "Created": f"2026-11-25T14:0{number % 10}:00+00:00", "Message": text,
        **more,
    }  # fmt: skip


def controller(*, expands: bool = False, speeds: tuple[float | None, ...] = (9800, 9400, 9600)) -> Tree:
    """A controller of a new server: two supplies, fans, and two logs of which one is of people."""
    tree = server()
    tree[V1] |= {"Managers": at("Managers"), "Systems": at("Systems")}
    tree[V1] |= {"ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": expands, "Levels": True}}}
    tree[f"{V1}/Chassis/1"] |= {"ThermalSubsystem": at("Chassis/1/ThermalSubsystem")}
    tree[f"{V1}/Chassis/1/ThermalSubsystem"] = {"Fans": at(FANS)}
    tree[f"{V1}/{FANS}"] = collection(*(f"{FANS}/{number}" for number in range(len(speeds))))
    for number, speed in enumerate(speeds):
        tree[f"{V1}/{FANS}/{number}"] = {
            "@odata.type": "#Fan.v1_5_0.Fan",
            "Name": f"Fan {number}",
            "Status": status(),
            "SpeedPercent": {"Reading": 60.0, "SpeedRPM": speed} if speed is not None else None,
        }
    for number in range(2):
        tree[f"{V1}/Chassis/1/PowerSubsystem/PowerSupplies/{number}"] |= {"Status": status()}
    tree[f"{V1}/Systems"] = collection("Systems/1")
    tree[f"{V1}/Systems/1"] = {"LogServices": at("Systems/1/LogServices")}
    tree[f"{V1}/Systems/1/LogServices"] = collection("Systems/1/LogServices/AuditLog")
    tree[f"{V1}/Systems/1/LogServices/AuditLog"] = {
        "Id": "AuditLog",
        "Entries": at("Systems/1/LogServices/AuditLog/Entries"),
    }
    tree[f"{V1}/Managers"] = collection("Managers/BMC")
    tree[f"{V1}/Managers/BMC"] = {"LogServices": at("Managers/BMC/LogServices")}
    tree[f"{V1}/Managers/BMC/LogServices"] = collection("Managers/BMC/LogServices/SEL")
    tree[f"{V1}/Managers/BMC/LogServices/SEL"] = {
        "@odata.type": "#LogService.v1_6_0.LogService", "Id": "SEL", "LogEntryType": "SEL",
        "MaxNumberOfRecords": 100, "OverWritePolicy": "NeverOverWrites", "Entries": at(ENTRIES),
    }  # fmt: skip
    tree[f"{V1}/{ENTRIES}"] = {
        "Members": [entry(1, "Log cleared"), entry(2, "Lower critical", "Critical", Resolved=True)]
    }
    return tree


def old() -> Tree:
    """A controller of before ThermalSubsystem; one fan in percent, a place without a supply."""
    tree = old_server()
    tree[f"{V1}/Chassis/Self"] |= {"Thermal": at("Chassis/Self/Thermal")}
    tree[f"{V1}/Chassis/Self/Power"]["PowerSupplies"] = [
        {"Status": status()},
        {"Status": status("Warning")},
        {"Status": status(None, "Absent")},
    ]
    tree[f"{V1}/Chassis/Self/Thermal"] = {
        "@odata.type": "#Thermal.v1_7_1.Thermal",
        "Fans": [
            {"Reading": 7440, "ReadingUnits": "RPM", "Status": status()},
            {"Reading": 900, "ReadingUnits": "RPM", "Status": status()},
            {"Reading": 7380, "ReadingUnits": "RPM", "Status": status()},
            {"Reading": 35, "ReadingUnits": "Percent", "Status": status("Critical")},
            {"Reading": None, "ReadingUnits": "RPM", "Status": status(None, "Absent")},
        ],
    }
    return tree


async def ask(read: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(read)


async def test_fans_supplies_and_the_log_of_a_new_controller_are_read() -> None:
    async with serving(controller(speeds=(9800, 9400, 1500, None))) as service:
        parts = PartLog()
        found = RedfishBmc(BmcConfig(url=service.url), parts)
        assert await ask(found.fans) == {"node_fans": 4, "node_fans_failed": 1}
        (slow,) = parts.drain_events()
        assert (slow.data["metric"], slow.data["unit"]) == ("node_fans_failed", "Fan 2")
        assert await ask(found.supplies) == {"node_supplies": 2, "node_supplies_failed": 0}
        entries, share = await ask(found.entries)
        assert [(each.text, each.critical) for each in entries] == [("Log cleared", False), ("Lower critical", False)]
        assert share == 0.02
        requests = len(service.asked)
        await ask(found.supplies)
        assert service.asked[requests:] == [
            f"GET {V1}/Chassis/1/PowerSubsystem/PowerSupplies",
            f"GET {SUPPLY}",
            f"GET {SUPPLY[:-1]}1",
        ]


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"Status": status("Critical")}, 1), ({"Status": status("Warning")}, 1),
        ({"LineInputStatus": "LossOfInput"}, 1), ({"LineInputStatus": "OutOfRange"}, 1),
        ({"Status": status(None, "UnavailableOffline")}, 1), ({"Status": status(None)}, 0),
    ],
)  # fmt: skip
async def test_a_supply_is_as_it_says(change: dict[str, Any], failed: int) -> None:
    tree = controller()
    tree[SUPPLY] |= change
    async with serving(tree) as service:
        found = await ask(RedfishBmc(BmcConfig(url=service.url)).supplies)
        assert found == {"node_supplies": 2, "node_supplies_failed": failed}


async def test_the_older_schema_is_read_and_empty_places_are_none() -> None:
    async with serving(old()) as service:
        found = RedfishBmc(BmcConfig(url=service.url))
        assert await ask(found.fans) == {"node_fans": 4, "node_fans_failed": 2}
        assert await ask(found.supplies) == {"node_supplies": 2, "node_supplies_failed": 1}
        with pytest.raises(UnknownError):
            await ask(found.entries)


async def test_a_service_that_expands_is_asked_once_for_a_collection() -> None:
    tree = controller(expands=True)
    whole = [tree[f"{V1}/{FANS}/{number}"] | at(f"{FANS}/{number}") for number in range(3)]
    tree[f"{V1}/{FANS}"]["Members"] = whole
    async with serving(tree) as service:
        found = RedfishBmc(BmcConfig(url=service.url))
        assert await ask(found.fans) == {"node_fans": 3, "node_fans_failed": 0}
        assert service.asked[-1] == f"GET {V1}/{FANS}"


async def test_a_log_of_several_pages_is_read_to_its_end() -> None:
    tree = controller()
    tree[f"{V1}/{ENTRIES}"]["Members@odata.nextLink"] = f"{V1}/{ENTRIES}/next"
    tree[f"{V1}/{ENTRIES}/next"] = {"Members": [entry(3, "Power supply lost its input", "Critical")]}
    async with serving(tree) as service:
        entries, _ = await ask(RedfishBmc(BmcConfig(url=service.url)).entries)
        assert [(each.id, each.critical) for each in entries][-1] == ("3 2026-11-25T14:03:00+00:00", True)


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("secret\n")
    return file


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return certificate_in(tmp_path)


@pytest.mark.parametrize("login", ["session", "basic"])
async def test_a_login_is_by_session_or_by_password(
    login: Any, password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redfish, "LEAVING", 60.0)
    async with serving(controller(), password="secret") as service:
        found = RedfishBmc(BmcConfig(url=service.url, username="monitor", password_file=password, login=login))
        assert (await ask(found.fans))["node_fans"] == 3
        assert service.logins == (login == "session")
        service.sessions.clear()  # they end by themselves after a while
        assert (await ask(found.fans))["node_fans"] == 3
        assert service.logins == 2 * (login == "session")
        await ask(found.close)
        assert service.sessions == set()


async def test_a_wrong_password_is_no_permission(password: Path) -> None:
    password.write_text("other")
    lacking = password.with_name("none")
    async with serving(controller(), password="secret") as service:
        for login in ("session", "basic"):
            config = BmcConfig(url=service.url, username="monitor", password_file=password, login=login)  # type: ignore[arg-type]  # both are
            with pytest.raises(PermissionError):
                await ask(RedfishBmc(config).fans)
            with pytest.raises(PermissionError, match="can't be read"):
                await ask(RedfishBmc(msgspec.structs.replace(config, password_file=lacking)).fans)


async def test_certificates_are_checked_unless_told(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
    async with serving(controller(), tls=tls) as service:
        with pytest.raises(OSError, match="certificate"):
            await ask(RedfishBmc(BmcConfig(url=service.url)).fans)
        for trust in ({"ca_file": certificate}, {"verify": False}):
            found = RedfishBmc(BmcConfig(url=service.url, **trust))  # type: ignore[arg-type]  # either
            assert (await ask(found.fans))["node_fans"] == 3


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda: web.Response(text="<html>busy</html>"), ValueError),
        (lambda: web.json_response(["no object"]), ValueError),
        (lambda: web.Response(status=503), OSError),
        (lambda: web.json_response({"Members": "none"}), UnknownError),
    ],
)
async def test_wrong_answers_are_errors_and_what_is_not_there_is_unknown(
    answer: Callable[[], web.Response], error: type[Exception]
) -> None:
    async with serving(controller()) as service:
        found = RedfishBmc(BmcConfig(url=service.url))
        await ask(found.fans)

        async def wrong(request: web.Request) -> web.StreamResponse | None:
            return answer() if request.path.endswith("Fans") else None

        service.before = wrong
        with pytest.raises(error):
            await ask(found.fans)
        service.before = None
        assert (await ask(found.fans))["node_fans"] == 3


async def test_a_resource_that_is_gone_is_found_again_at_its_new_place() -> None:
    async with serving(controller()) as service:
        found = RedfishBmc(BmcConfig(url=service.url))
        await ask(found.fans)
        fans = service.tree.pop(f"{V1}/{FANS}")
        service.tree[f"{V1}/Chassis/1/ThermalSubsystem"]["Fans"] = at("Chassis/1/Cooling/Fans")
        service.tree[f"{V1}/Chassis/1/Cooling/Fans"] = fans
        with pytest.raises(OSError, match="there is no"):
            await ask(found.fans)
        assert (await ask(found.fans))["node_fans"] == 3


async def test_a_controller_that_answers_by_the_byte_takes_no_longer_than_it_may() -> None:
    """Each read succeeds in time; the whole does not."""
    async with serving(controller()) as service:

        async def slow(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for _ in range(600):
                await response.write(b" ")
                await asyncio.sleep(0.1)
            return response

        service.before = slow
        with pytest.raises(TimeoutError):
            await ask(RedfishBmc(BmcConfig(url=service.url, timeout=1.0)).fans)


async def test_a_host_reads_its_controller_and_a_gap_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick waits for nothing; critical entries become events, each once, also over a restart."""
    monkeypatch.setattr(bmc, "BMC_SECONDS", 0.0)
    monkeypatch.setattr(bmc, "LOG_SECONDS", 0.0)
    monkeypatch.setattr(programs, "_POLL", 0.02)
    async with serving(controller()) as service:
        host = started(tmp_path, service)
        await until(host, node_supplies=2, node_fans=3, node_bmc_log_critical=0, node_bmc_log_used_ratio=0.02)
        assert host.drain_events() == []
        service.tree[f"{V1}/{ENTRIES}"]["Members"].append(
            entry(
                3, "PSU2 lost its input", "Critical", Links={"OriginOfCondition": {"@odata.id": f"{SUPPLY[:-1]}PSU2"}}
            )
        )
        await until(host, node_bmc_log_critical=1)
        (event,) = host.drain_events()
        assert (event.kind, event.data) == (
            "bmc_log",
            {"what": "PSU2 lost its input", "metric": "node_bmc_log_critical", "unit": "PSU2", "count": 1},
        )
        await asyncio.to_thread(host.close)  # it may be asking, and is answered by this loop
        service.tree[f"{V1}/{ENTRIES}"]["Members"].append(entry(4, "Node was cold-started", "Critical"))
        host = started(tmp_path, service)
        await until(host, node_bmc_log_critical=2)
        assert [event.data["what"] for event in host.drain_events()] == ["Node was cold-started"]

        async def refuses(_: web.Request) -> web.StreamResponse:
            return web.Response(status=401)

        service.before = refuses
        await until(host, node_fans=Gap.NO_PERMISSION)
        await asyncio.to_thread(host.close)


def started(folder: Path, service: Redfish) -> Host:
    config = CollectorConfig(bmc=BmcConfig(url=service.url))
    (folder / "root").mkdir(exist_ok=True)
    return Host(folder / "root", disk=folder, nvme="", bmc=config.bmc, state_dir=folder / "state")


async def until(host: Host, **expected: object) -> None:
    """Take slow readings until they are so."""
    async with asyncio.timeout(30 * FACTOR):
        while True:
            found = await asyncio.to_thread(readings, host)
            if all(
                found[name.removeprefix("node_")] == value or reason_of(found[name.removeprefix("node_")]) is value
                for name, value in expected.items()
            ):
                return
            await asyncio.sleep(0.02)


# ---- the log ----


@pytest.mark.parametrize(
    ("line", "critical"),
    [
        ("1 | 06/14/2023 | 10:01:17 | Power Supply PS2 Status | Power Supply AC lost | Asserted", True),
        ("1 | 06/14/2023 | 10:01:17 | Power Supply PS2 Status | Power Supply AC lost | Deasserted", False),
        ("3a | 12/14/22 | 23:09:44 CET | Memory #0x88 | Correctable ECC (CPU0_G1) | Asserted", False),
        ("34 | 02/25/2025 | 04:50:09 PM EST | Memory #0x02 | Uncorrectable ECC (DIMMD7) | Asserted", True),
        ("5 | Pre-Init | 0000000123 | System Event #0x01 | Timestamp Clock Sync | Asserted", False),
        ("7 | 11/25/2026 | 14:00:00 | Temperature CPU1 | Upper Critical going high | Asserted", True),
        ("7 | 11/25/2026 | 14:00:00 | Temperature CPU1 | Upper Non-critical going high | Asserted", False),
        ("8 | 11/25/2026 | 14:00:00 | Processor CPU0 | IERR | Asserted", True),
        ("9 | 11/25/2026 | 14:00:00 | Power Unit | Fully Redundant", False),
        ("a | 11/25/2026 | 14:00:00 | Fan FAN3 | Lower Non-recoverable going low | Asserted", True),
        ("b | 11/25/2026 | 14:00:00 | Critical Interrupt PCIE | Bus Correctable error | Asserted", False),
        ("c | 11/25/2026 | 14:00:00 | Critical Interrupt PCIE | Bus Fatal Error | Asserted", True),
    ],
)
def test_an_entry_of_the_sel_is_critical_by_its_event(line: str, critical: bool) -> None:
    (found,) = elist(line)
    assert found.critical is critical


def test_what_ipmitool_says_of_the_log_is_read() -> None:
    assert [each.critical for each in elist(SEL + AC_LOST)] == [False, False, True]
    assert [each.unit for each in elist(SEL + AC_LOST)][1:] == ["CPU0_G1", "Power Supply PSU2"]
    assert elist("SEL has no entries\n") == []
    assert used(SEL_INFO.format(91)) == 0.91
    assert used("Percent Used     : unknown\n") is None


def test_entries_of_before_are_old_and_one_counts_for_a_day(tmp_path: Path) -> None:
    now = [1_790_000_000]
    file = tmp_path / "state/bmc_log.json"
    log = BmcLog(file, lambda: now[0] * 10**9)
    first, second = (BmcLogEntry(str(n), "noon", f"fault {n}", critical=True) for n in (1, 2))
    assert (log.receive([first]), log.drain_events()) == (0, [])
    assert log.receive([first, second]) == 1
    assert [event.data["what"] for event in log.drain_events()] == ["fault 2"]
    again = BmcLog(file, lambda: now[0] * 10**9)
    assert (again.receive([first, second]), again.drain_events()) == (1, [])
    now[0] += 86_400
    assert again.receive([first, second]) == 0
    third = BmcLogEntry("1 later", "later", "fault 3", critical=True)  # the log was cleared, and counts anew
    assert (again.receive([third]), len(again.drain_events())) == (1, 1)
    file.write_text("{")
    assert BmcLog(file, lambda: now[0] * 10**9).receive([third]) == 0, "a damaged file calls nobody"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "169.254.0.17"}, "no address"),
        ({"url": "https://user:secret@bmc"}, "no address"),
        ({"url": "https://bmc", "username": "monitor"}, "username and password_file"),
        ({"username": "monitor", "password_file": Path("p")}, "no url"),
        ({"url": "https://bmc", "timeout": 0.0}, "out of range"),
    ],
)
def test_settings_that_can_not_work_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        BmcConfig(**settings)
