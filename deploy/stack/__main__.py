"""`python -m deploy.stack`: a whole monitored cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from pathlib import Path

from deploy.stack.servers import PORTS, Stack, StackError
from kilowatch.stack.ports import free_port

ABOUT = """\
Starts Debian's mosquitto, influxd, Prometheus and Alertmanager, kilowatch's aggregator and two
simulated DGX H100 on loopback, with the configuration of deploy/, until Ctrl-C."""


def summary(stack: Stack) -> str:
    """Return the addresses of all parts, and commands to try."""
    at, influx = stack.url("kilowatch"), stack.url("influxd")
    return f"""SIMULATED data: two DGX H100
dashboard     kilowatch top {at.removeprefix("http://")}
kilowatch     {at}/healthz  {at}/metrics
Prometheus    {stack.url("prometheus")}/targets  /alerts
Alertmanager  {stack.url("alertmanager")}
InfluxDB      curl '{influx}/query?db=kilowatch&q=SHOW+MEASUREMENTS'
broker        cd {stack.folder} && kilowatch tap
Grafana       put grafana/provisioning and grafana/dashboards in place (docs/grafana.md)
files         {stack.folder}"""


def main(arguments: list[str]) -> int:
    """Run the stack until a signal. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.stack", description=ABOUT)
    parser.add_argument("--folder", type=Path, help="folder of data and logs [a temporary folder]")
    parser.add_argument("--scrape", default="5s", help="scrape interval of Prometheus [5s; 15s in the shipped file]")
    parser.add_argument("--faults", default="", help="simulated faults as in kilowatch demo, e.g. xid79@dgx-02/3+30s")
    parser.add_argument("--free-ports", action="store_true", help="listen on free ports instead of the usual ones")
    asked = parser.parse_args(arguments)
    ports = {name: free_port() for name in PORTS} if asked.free_ports else PORTS
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="kilowatch-stack-"))
    stack = Stack(folder.absolute(), ports, asked.scrape, asked.faults)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        stack.start()
        sys.stdout.write(summary(stack) + "\n")
        sys.stdout.flush()
        while not stop.wait(0.5):
            stack.check()
    except StackError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        stack.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
