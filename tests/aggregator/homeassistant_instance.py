"""Run Home Assistant's own package on a broker, and print what it shows.

Run by a Python that has the package `homeassistant` (`make homeassistant`): its core with the integration MQTT, set up
by the dialog that a user fills in, and no frontend. Arguments: a folder for its settings; on the loopback address the
broker's port, and one for its own listener. After each change it prints a line: a JSON object of all MQTT entities by unique id.
"""

import asyncio
import json
import sys
from pathlib import Path

from homeassistant import auth, bootstrap, config_entries, loader
from homeassistant.components.mqtt import DOMAIN
from homeassistant.core import Event, HomeAssistant
from homeassistant.helpers import device_registry, entity_registry
from homeassistant.setup import async_setup_component

CHANGES = ("state_changed", "entity_registry_updated", "device_registry_updated")


def shown(hass: HomeAssistant) -> dict[str, dict[str, object]]:
    """Return the MQTT entities by unique id: what a user reads of each, in the words of Home Assistant."""
    entities, devices = entity_registry.async_get(hass), device_registry.async_get(hass)
    found = {}
    for entry in entities.entities.values():
        state = hass.states.get(entry.entity_id)
        device = devices.async_get(entry.device_id or "")
        if entry.platform == DOMAIN and state is not None:
            found[entry.unique_id] = {
                "entity": entry.entity_id,
                "name": state.name,
                "device": None if device is None else device.name,
                "state": state.state,
                "attributes": dict(state.attributes),
            }
    return found


async def main(folder: str, port: int, pages: int) -> None:
    hass = HomeAssistant(folder)
    hass.config.skip_pip = True
    loader.async_setup(hass)
    hass.config_entries = config_entries.ConfigEntries(hass, {})
    await bootstrap.async_load_base_functionality(hass)
    hass.auth = await auth.auth_manager_from_config(hass, [], [])
    assert await async_setup_component(hass, "homeassistant", {})
    listener = {"http": {"server_host": "127.0.0.1", "server_port": pages}}
    assert await async_setup_component(hass, "http", listener)  # to upload certificates for MQTT
    flow = await hass.config_entries.flow.async_init(DOMAIN, context={"source": "user"})
    done = await hass.config_entries.flow.async_configure(flow["flow_id"], {"broker": "127.0.0.1", "port": port})
    assert done["type"] == "create_entry", done
    changed = asyncio.Event()

    async def note(_: Event) -> None:
        changed.set()

    for kind in CHANGES:
        hass.bus.async_listen(kind, note)
    await hass.async_start()
    while True:
        changed.clear()
        print(json.dumps(shown(hass), default=str), flush=True)
        await changed.wait()


folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
(folder / "configuration.yaml").touch()
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
