"""A Redfish service that answers as the schemas say: servers old and new, and a distribution unit."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

Tree = dict[str, dict[str, Any]]
V1 = "/redfish/v1"


def at(path: str) -> dict[str, str]:
    """A link."""
    return {"@odata.id": f"{V1}/{path}"}


def collection(*paths: str) -> dict[str, Any]:
    """A collection of links."""
    return {
        "@odata.type": "#Collection.Collection",
        "Members": [at(path) for path in paths],
        "Members@odata.count": len(paths),
    }


def excerpt(value: float, **more: Any) -> dict[str, Any]:
    """A sensor's excerpt."""
    return {"Reading": value, "DataSourceUri": f"{V1}/Chassis/1/Sensors/x", **more}


def server(watts: tuple[float | None, ...] = (2010.0, 1990.5), status: str = "Normal") -> Tree:
    """A new server: two supplies, and a baseboard of GPUs that reports its own power."""
    tree: Tree = {
        V1: {"@odata.type": "#ServiceRoot.v1_16_0.ServiceRoot", "Chassis": at("Chassis")},
        f"{V1}/Chassis": collection("Chassis/1", "Chassis/HGX"),
        f"{V1}/Chassis/1": {
            "@odata.type": "#Chassis.v1_25_0.Chassis",
            "PowerSubsystem": at("Chassis/1/PowerSubsystem"),
            "EnvironmentMetrics": at("Chassis/1/EnvironmentMetrics"),
            "Links": {"Contains": [at("Chassis/HGX")]},
        },
        f"{V1}/Chassis/HGX": {
            "@odata.type": "#Chassis.v1_25_0.Chassis",
            "EnvironmentMetrics": at("Chassis/HGX/EnvironmentMetrics"),
            "Links": {"ContainedBy": at("Chassis/1")},
        },
        f"{V1}/Chassis/HGX/EnvironmentMetrics": {
            "@odata.type": "#EnvironmentMetrics.v1_3_1.EnvironmentMetrics", "PowerWatts": excerpt(2800)},
        f"{V1}/Chassis/1/EnvironmentMetrics": {
            "@odata.type": "#EnvironmentMetrics.v1_3_1.EnvironmentMetrics",
            "PowerWatts": excerpt(3900.0), "EnergykWh": excerpt(12.5)},
        f"{V1}/Chassis/1/PowerSubsystem": {
            "@odata.type": "#PowerSubsystem.v1_1_2.PowerSubsystem", "CapacityWatts": 6000,
            "PowerSupplies": at("Chassis/1/PowerSubsystem/PowerSupplies")},
        f"{V1}/Chassis/1/PowerSubsystem/PowerSupplies": collection(
            *(f"Chassis/1/PowerSubsystem/PowerSupplies/{n}" for n in range(len(watts)))),
    }  # fmt: skip
    for place, input_watts in enumerate(watts):
        path = f"Chassis/1/PowerSubsystem/PowerSupplies/{place}"
        lost = status if place == 0 else "Normal"
        tree[f"{V1}/{path}"] = {
            "@odata.type": "#PowerSupply.v1_6_0.PowerSupply",
            "LineInputStatus": lost,
            "Metrics": at(f"{path}/Metrics"),
        }
        told = None if input_watts is None else excerpt(input_watts)
        tree[f"{V1}/{path}/Metrics"] = {
            "@odata.type": "#PowerSupplyMetrics.v1_1_2.PowerSupplyMetrics",
            "InputPowerWatts": told,
        }
    return tree


def old_server(watts: float | None = 411) -> Tree:
    """One from before PowerSubsystem; the second entry is a part of the first."""
    return {
        V1: {"Chassis": at("Chassis")},
        f"{V1}/Chassis": collection("Chassis/Self"),
        f"{V1}/Chassis/Self": {"@odata.type": "#Chassis.v1_4_0.Chassis", "Power": at("Chassis/Self/Power")},
        f"{V1}/Chassis/Self/Power": {
            "@odata.type": "#Power.v1_5_0.Power",
            "PowerControl": [{"Name": "Server", "PowerConsumedWatts": watts}, {"Name": "CPU", "PowerConsumedWatts": 90}],
            "PowerSupplies": [{"LineInputVoltage": 230, "LastPowerOutputWatts": 200}],
        },
    }  # fmt: skip


def pdu() -> Tree:
    """A rack's unit: one three-phase inlet, two banks of which one has tripped, an outlet."""
    unit = "PowerEquipment/RackPDUs/1"
    lines = {"Line1": 14.1, "Line2": 13.5, "Line3": 9.9}
    return {
        V1: {"PowerEquipment": at("PowerEquipment")},
        f"{V1}/PowerEquipment": {"@odata.type": "#PowerEquipment.v1_2_1.PowerEquipment", "RackPDUs": at("PowerEquipment/RackPDUs")},
        f"{V1}/PowerEquipment/RackPDUs": collection(unit),
        f"{V1}/{unit}": {
            "@odata.type": "#PowerDistribution.v1_4_0.PowerDistribution", "Mains": at(f"{unit}/Mains"),
            "Branches": at(f"{unit}/Branches"), "Metrics": at(f"{unit}/Metrics")},
        f"{V1}/{unit}/Mains": collection(f"{unit}/Mains/AC1"),
        f"{V1}/{unit}/Metrics": {"@odata.type": "#PowerDistributionMetrics.v1_3_2.PowerDistributionMetrics", "PowerWatts": excerpt(4400)},
        f"{V1}/{unit}/Mains/AC1": {
            "@odata.type": "#Circuit.v1_8_0.Circuit", "CircuitType": "Mains", "PhaseWiringType": "ThreePhase5Wire",
            "RatedCurrentAmps": 48, "BreakerState": "Normal", "PowerWatts": excerpt(4410, ApparentVA=4600, PowerFactor=0.96),
            "EnergykWh": excerpt(325.5),
            "PolyPhaseCurrentAmps": {line: excerpt(amps) for line, amps in lines.items()} | {"Neutral": excerpt(4.2)},
            "PolyPhaseVoltage": {"Line1ToNeutral": excerpt(119.9), "Line1ToLine2": excerpt(207.6)},
            "PolyPhasePowerWatts": {"Line1ToNeutral": excerpt(1620)}},
        f"{V1}/{unit}/Branches/A": {
            "@odata.type": "#Circuit.v1_8_0.Circuit", "BreakerState": "Normal", "CurrentAmps": excerpt(9.5),
            "Voltage": excerpt(207), "PowerWatts": excerpt(1930)},
        f"{V1}/{unit}/Branches/B": {
            "@odata.type": "#Circuit.v1_8_0.Circuit", "BreakerState": "Tripped", "CurrentAmps": excerpt(0), "PowerWatts": excerpt(0)},
        f"{V1}/{unit}/Outlets/1": {"@odata.type": "#Outlet.v1_4_4.Outlet", "PowerWatts": excerpt(812.5), "CurrentAmps": excerpt(3.9)},
    }  # fmt: skip


class Redfish:
    """The running service, and what happened to it."""

    def __init__(self, tree: Tree, password: str | None) -> None:
        self.tree = tree
        self.password = password
        self.url = ""
        self.sessions: set[str] = set()
        self.logins = 0
        self.asked: list[str] = []
        self.before: Callable[[web.Request], Awaitable[web.StreamResponse | None]] | None = None
        """May answer in its place."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        if self.before is not None and (other := await self.before(request)) is not None:
            return other
        if request.path == f"{V1}/SessionService/Sessions" and request.method == "POST":
            return await self._log_in(request)
        if request.method == "DELETE":
            self.sessions.discard(request.headers["X-Auth-Token"])
            return web.Response(status=204)
        if self.password is not None and not self._may(request):
            return web.json_response({"error": {"code": "Base.1.8.NoValidSession"}}, status=401)
        found = self.tree.get(request.path.rstrip("/"))
        if found is None:
            return web.json_response({"error": {"code": "Base.1.8.ResourceMissingAtURI"}}, status=404)
        return web.json_response({"@odata.id": request.path, **found})

    async def _log_in(self, request: web.Request) -> web.Response:
        told = await request.json()
        if told != {"UserName": "monitor", "Password": self.password}:
            return web.json_response({}, status=401)
        self.logins += 1
        token = f"token-{self.logins}"
        self.sessions.add(token)
        place = f"https://elsewhere.example{V1}/SessionService/Sessions/{self.logins}"
        return web.json_response({}, status=201, headers={"X-Auth-Token": token, "Location": place})

    def _may(self, request: web.Request) -> bool:
        basic = base64.b64encode(f"monitor:{self.password}".encode()).decode()
        return (
            request.headers.get("X-Auth-Token") in self.sessions
            or request.headers.get("Authorization") == f"Basic {basic}"
        )


@asynccontextmanager
async def serving(tree: Tree, password: str | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Redfish]:
    """Serve a tree on a free port."""
    service = Redfish(tree, password)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", service.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server = runner.server
    assert server is not None
    service.url = f"{'https' if tls else 'http'}://localhost:{runner.addresses[0][1]}"
    try:
        yield service
    finally:
        # A connection that is accepted as the server closes is left open by asyncio; clients close theirs in threads.
        for _ in range(40):
            await asyncio.sleep(0.05)
            if not server.connections:
                break
        await runner.cleanup()


def certificate_in(folder: Path) -> Path:
    """Make a key and a certificate for localhost that no client trusts yet; return the certificate."""
    if shutil.which("openssl") is None:
        if os.environ.get("CI"):
            pytest.fail("openssl is not installed, and CI must run it")
        pytest.skip("openssl is not installed")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "cert.pem"
