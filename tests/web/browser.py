"""A real Chromium, driven by its DevTools protocol: pages, clicks, texts, requests, console errors."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.kit.waiting import FACTOR, within

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needed = pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="apt-get install chromium")
PATIENCE = 120.0
SIZES = {"desktop": (1440, 900), "wide": (1920, 1080), "phone": (390, 844)}


class BrowserPage:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, process: int) -> None:
        self.process = process
        """Number of the browser's process."""
        self.requests: list[str] = []
        """URLs that it asked for."""
        self.errors: list[str] = []
        """What it wrote to the console as an error, and exceptions."""
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def listen(self) -> None:
        """Receive until the browser ends."""
        async for message in self._socket:
            body = json.loads(message.data)
            if "id" in body:
                self._waiting.pop(body["id"]).set_result(body)
            elif body["method"] == "Network.requestWillBeSent":
                self.requests.append(body["params"]["request"]["url"])
            elif body["method"] == "Runtime.exceptionThrown":
                self.errors.append(str(body["params"]["exceptionDetails"]))
            elif body["method"] == "Log.entryAdded" and body["params"]["entry"]["level"] == "error":
                self.errors.append(str(body["params"]["entry"]))
            elif body["method"] == "Runtime.consoleAPICalled" and body["params"]["type"] == "error":
                self.errors.append(str(body["params"]["args"]))

    async def _ask(self, method: str, **asked: Any) -> dict[str, Any]:
        """Call a method of the protocol; return its whole answer."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": asked})
        async with within(PATIENCE):
            body: dict[str, Any] = await answer
            return body

    async def call(self, method: str, **asked: Any) -> dict[str, Any]:
        """Call a method of the protocol; return its result."""
        body = await self._ask(method, **asked)
        assert "error" not in body, body
        found: dict[str, Any] = body["result"]
        return found

    async def value(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def do(self, script: str) -> None:
        """Run an expression that may leave the page, and so end before it can answer."""
        body = await self._ask("Runtime.evaluate", expression=f"void {script}")
        if "error" in body:
            assert body["error"]["message"] == "Inspected target navigated or closed", body
        else:
            assert "exceptionDetails" not in body["result"], body

    async def until(self, script: str) -> None:
        """Wait until an expression is true; a page that is being left counts as not yet."""
        async with asyncio.timeout(PATIENCE * FACTOR):
            while True:
                with contextlib.suppress(AssertionError):
                    if await self.value(script):
                        return
                await asyncio.sleep(0.1)

    async def open(self, url: str) -> None:
        """Go to a page, and wait until it is there with its scripts."""
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    async def click(self, selector: str) -> None:
        """Click an element."""
        await self.do(f"document.querySelector({json.dumps(selector)}).click()")

    async def click_until_reloaded(self, selector: str) -> None:
        """Click an element, and wait until the page has loaded itself anew because of it."""
        await self.value("window.before = true")
        await self.click(selector)
        await self.until("window.before === undefined && document.readyState === 'complete'")

    async def size(self, name: str) -> None:
        """Make the window as large as a desktop's or a phone's."""
        width, height = SIZES[name]
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=name == "phone",
        )


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[BrowserPage]:
    """Open a browser with one tab for as long as the block runs."""
    browser = await asyncio.create_subprocess_exec(
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        f"--user-data-dir={folder}",
        "--remote-debugging-port=0",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _found(lambda: (folder / "DevToolsActivePort").read_text().split()[0])
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = await answer.json(content_type=None)
            address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(address, max_msg_size=0) as socket:
                page = BrowserPage(socket, browser.pid)
                task = asyncio.create_task(page.listen())
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await page.call(f"{domain}.enable")
                # A window that a person looks at; without, no element is told that it has the focus.
                await page.call("Emulation.setFocusEmulationEnabled", enabled=True)
                yield page
                task.cancel()
    finally:
        browser.kill()
        await browser.wait()


async def _found(look: Callable[[], str]) -> str:
    async with within(PATIENCE):
        while True:
            with contextlib.suppress(OSError, IndexError):
                return look()
            await asyncio.sleep(0.1)
