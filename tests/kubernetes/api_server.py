"""An API server of Kubernetes that speaks TLS and JSON: pods, and resource slices of the versions that it has."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

VERSIONS = ("v1", "v1beta2", "v1beta1")
"""Versions of resource.k8s.io that have resource slices."""


class ApiServer:
    """Lists pods over TLS to whoever has the token."""

    def __init__(self, folder: Path) -> None:
        """Make a certificate and a token in a folder."""
        self.items: list[dict[str, Any]] = []
        self.slices: dict[str, list[dict[str, Any]]] = {}
        """Resource slices by the version of their group; others are not there."""
        self.status = 200
        self.asked: list[str] = []
        self.authority, key = folder / "ca.crt", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-keyout", key, "-out", self.authority, "-days", "2", "-subj", "/CN=api",
             "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True, capture_output=True,
        )  # fmt: skip
        self.token = folder / "token"
        self.token.write_text("secret\n")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                right = self.headers["Authorization"] == "Bearer secret"
                items, status = outer.items, outer.status
                kind, version = "PodList", "v1"
                if self.path.startswith("/apis/resource.k8s.io/"):
                    kind, version = "ResourceSliceList", self.path.split("/")[3]
                    items = outer.slices.get(version, [])
                    status = status if version in outer.slices else 404
                    version = f"resource.k8s.io/{version}"
                    items = [each for each in items if outer.selected(self.path, each)]
                body = json.dumps({"kind": kind, "apiVersion": version, "items": items}).encode()
                self.send_response(status if right else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Stay silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    def settings(self) -> dict[str, Any]:
        """Return the settings that lead here."""
        return {
            "api": True,
            "server": f"https://127.0.0.1:{self.server.server_address[1]}",
            "token_file": self.token,
            "authority_file": self.authority,
        }

    @staticmethod
    def selected(path: str, item: Mapping[str, Any]) -> bool:
        """Return whether an object has the field that the question selects."""
        field, _, value = parse_qs(urlsplit(path).query)["fieldSelector"][0].partition("=")
        found: Any = item
        for part in field.split("."):
            found = (found or {}).get(part)
        return item.get("spec") is None or found == value


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[ApiServer]:
    """Start an API server; stop it at the end."""
    running = ApiServer(folder)
    thread = threading.Thread(target=running.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        running.server.server_close()
        thread.join()


def resource_slice(
    devices: Mapping[str, Mapping[str, str]],
    *,
    version: str = "v1",
    driver: str = "gpu.nvidia.com",
    pool: str = "n1",
    node: str = "n1",
    generation: int = 1,
) -> dict[str, Any]:
    """Return what a driver publishes of its devices: texts of the attributes of each, by its name."""
    rows = []
    for name, texts in devices.items():
        facts: dict[str, Any] = {key: {"string": text} for key, text in texts.items()}
        facts["driverVersion"] = {"version": "580.65.6"}
        content = {"attributes": facts, "capacity": {"memory": {"value": "80Gi"}}}
        rows.append({"name": name, **({"basic": content} if version == "v1beta1" else content)})
    return {
        "metadata": {"name": f"{node}-{driver}-{pool}-{generation}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "devices": rows,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
        },
    }
