"""Redfish: real HTTP to services that answer as the schemas say, and to some that do not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from power.devices.wall_power import WallSource
from tests.aggregator.meter_hub import reading, running, state
from tests.aggregator.redfish_server import Redfish, Tree, certificate_in, old_server, pdu, server, serving
from tests.kit.waiting import until


def bmc(service: Redfish, more: str = "", name: str = "bmc", on: str = "rig1") -> str:
    """The controller of a node."""
    return f'[meters.{name}]\ntype = "redfish"\nurl = "{service.url}"\nevery = 1\non = "{on}"\n{more}\n'


def unit(service: Redfish, parts: str) -> str:
    """A distribution unit."""
    return f'[meters.pdu]\ntype = "redfish"\nurl = "{service.url}"\nevery = 1\n{parts}\n'


async def test_a_server_is_the_input_of_its_supplies() -> None:
    """Not what its GPUs draw, nor what comes out of the supplies."""
    async with serving(server()) as service, running(bmc(service)) as hub:
        found = await until(lambda: reading(hub, "rig1"))
        assert (found.watts, found.source, found.flags) == (4000.5, WallSource.BMC, ())
        first = len(service.asked)
        await until(lambda: (one := reading(hub, "rig1")) and one.at > found.at)
        assert len(service.asked) - first == 4  # found out once; a round asks supplies alone


@pytest.mark.parametrize(
    ("tree", "watts", "flags"),
    [
        (server((2010.0, None)), 3900, ()),
        (server((None, 4010.0), "LossOfInput"), 4010, ("input_lost",)),
        (server(()), 3900, ()),
        (old_server(), 411, ()),
    ],
    ids=["a supply does not tell", "a supply without input", "no supplies", "before PowerSubsystem"],
)
async def test_what_stands_in_for_supplies(tree: Tree, watts: float, flags: tuple[str, ...]) -> None:
    async with serving(tree) as service, running(bmc(service)) as hub:
        found = await until(lambda: reading(hub, "rig1"))
        assert (found.watts, found.flags) == (watts, flags)


async def test_a_chassis_that_tells_nothing_is_no_reading() -> None:
    async with serving(old_server(None)) as service, running(bmc(service)) as hub:
        assert "set path" in await until(lambda: state(hub, "bmc").message)
        assert reading(hub, "rig1") is None


async def test_one_resource_by_its_path() -> None:
    """A GPU baseboard as a meter of its own."""
    path = 'path = "/redfish/v1/Chassis/HGX/EnvironmentMetrics"'
    async with serving(server()) as service, running(bmc(service, path)) as hub:
        assert (await until(lambda: reading(hub, "rig1"))).watts == 2800


async def test_the_parts_of_a_distribution_unit() -> None:
    """An inlet with poles, a bank that tripped, an outlet of a node; one part that is not there."""
    parts = (
        'map = { "RackPDUs/1/Mains/AC1" = "lab", "RackPDUs/1/Branches/B" = "office", '
        '"RackPDUs/1/Outlets/1" = "rig1", "RackPDUs/1/Outlets/9" = "rig2" }'
    )
    async with serving(pdu()) as service, running(unit(service, parts)) as hub:
        whole = await until(lambda: reading(hub, "lab"))
        assert (whole.watts, whole.volt_amps, whole.power_factor, whole.neutral_amps) == (4410, 4600, 0.96, 4.2)
        assert (whole.energy_joules, whole.source) == (325.5 * 3.6e6, WallSource.PDU)
        poles = [reading(hub, "lab", pole) for pole in ("L1", "L2", "L3")]
        assert [one and one.amps for one in poles] == [14.1, 13.5, 9.9]
        assert [one and one.watts for one in poles] == [1620, None, None]
        tripped = reading(hub, "office")
        assert tripped is not None
        assert (tripped.watts, tripped.flags) == (0, ("tripped",))
        outlet = reading(hub, "rig1")
        assert outlet is not None
        assert (outlet.kind, outlet.watts, outlet.source) == ("node", 812.5, WallSource.PDU)
        assert reading(hub, "rig2") is None
        assert "Outlets/9" in state(hub, "pdu").message


async def test_the_only_inlet_needs_no_name_and_a_whole_unit_is_a_part_too() -> None:
    async with serving(pdu()) as service:
        async with running(unit(service, 'on = "lab"')) as hub:
            assert (await until(lambda: reading(hub, "lab"))).watts == 4410
        async with running(unit(service, 'map = { "RackPDUs/1" = "lab" }')) as hub:
            assert (await until(lambda: reading(hub, "lab"))).watts == 4400


@pytest.mark.parametrize("login", ["basic", "session"])
async def test_a_login_by_file(login: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    more = f'username = "monitor"\npassword_file = "{tmp_path}/secret"\nlogin = "{login}"'
    async with serving(server(), "s3cret") as service:
        async with running(bmc(service, more)) as hub:
            first = await until(lambda: reading(hub, "rig1"))
            service.sessions.clear()  # the service ends sessions by itself; the next round logs in anew
            await until(lambda: (one := reading(hub, "rig1")) and one.at > first.at)
            assert service.logins == (2 if login == "session" else 0)
            assert state(hub, "bmc").errors == 0
        assert service.sessions == set()  # and ours is ended at the end


async def test_a_wrong_password_is_said_without_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    for login in ("basic", "session"):
        more = f'username = "monitor"\npassword_file = "{tmp_path}/secret"\nlogin = "{login}"'
        async with serving(server(), "s3cret") as service, running(bmc(service, more)) as hub:
            assert "check username and password_file" in await until(lambda: state(hub, "bmc").message)
    assert "hunter2" not in caplog.text


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate for localhost that no client trusts yet."""
    return certificate_in(tmp_path)


@pytest.mark.parametrize(
    ("more", "good"),
    [("", False), ("verify = false", True), ('ca_file = "{}"', True)],
    ids=["untrusted", "not verified", "trusted by file"],
)
async def test_certificates_are_checked_unless_told(certificate: Path, more: str, good: bool) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
    async with serving(server(), tls=tls) as service, running(bmc(service, more.format(certificate))) as hub:
        if good:
            assert (await until(lambda: reading(hub, "rig1"))).watts == 4000.5
        else:
            message = await until(lambda: state(hub, "bmc").message)
            assert "set ca_file, or verify = false" in message
            assert reading(hub, "rig1") is None


async def _hang(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def _endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(64):
        await answer.write(b"x" * 65536)
    return answer


async def _half(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": "1000"})
    await answer.prepare(request)
    await answer.write(b'{"Chassis": ')
    assert request.transport is not None
    request.transport.abort()
    return answer


async def _elsewhere(_: web.Request) -> web.Response:
    raise web.HTTPFound("http://192.0.2.1/redfish/v1")


async def _page(_: web.Request) -> web.Response:
    return web.Response(text="<html>Please log in</html>", content_type="text/html")


async def _broken(_: web.Request) -> web.Response:
    return web.Response(status=503)


async def _astray(_: web.Request) -> web.Response:
    return web.json_response({"Chassis": {"@odata.id": "http://192.0.2.1/redfish/v1/Chassis"}})


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (_hang, "no answer within 0.5 s"),
        (_endless, "too_long"),
        (_half, "bad_http"),
        (_elsewhere, "it answers 302"),
        (_page, "not_json"),
        (_broken, "it answers 503"),
        (_astray, "it has no Chassis"),
    ],
    ids=["hangs", "endless", "half", "redirect", "a page", "broken", "a link to elsewhere"],
)
async def test_a_service_that_misbehaves_is_bounded_and_another_goes_on(before: object, message: str) -> None:
    async with serving(server()) as bad, serving(old_server()) as well:
        bad.before = before  # type: ignore[assignment]  # each is what a handler is
        meters = bmc(bad, "timeout = 0.5") + bmc(well, name="other", on="rig2")
        async with running(meters) as hub:
            await until(lambda: message in state(hub, "bmc").message)
            assert (await until(lambda: reading(hub, "rig2"))).watts == 411
            assert reading(hub, "rig1") is None


async def test_a_chassis_that_goes_is_looked_for_anew() -> None:
    async with serving(server()) as service, running(bmc(service)) as hub:
        await until(lambda: reading(hub, "rig1"))
        service.tree = old_server(512)
        await until(lambda: (one := reading(hub, "rig1")) and one.watts == 512)


async def test_several_chassis_that_could_be_it_are_named() -> None:
    tree = server(())
    tree["/redfish/v1/Chassis/HGX"]["Links"] = {}
    async with serving(tree) as service, running(bmc(service)) as hub:
        message = await until(lambda: state(hub, "bmc").message)
        assert "/redfish/v1/Chassis/1, /redfish/v1/Chassis/HGX: set path" in message
