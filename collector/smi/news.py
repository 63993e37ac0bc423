"""What changed between two inventories, as happenings."""

from __future__ import annotations

from collector.source import Happening
from telemetry.inventory import Inventory


def news(old: Inventory, new: Inventory, at: int) -> list[Happening]:
    """Return what an operator should hear of; `at` is ns since 1970."""
    happened: list[Happening] = []
    if old.driver_state not in {"unknown", new.driver_state}:
        if new.driver_state == "up":
            happened.append(Happening("driver_up", at, message="the driver answers again"))
        elif old.driver_state == "up":
            happened.append(
                Happening(
                    "driver_down", at, message=new.driver_message, data={"state": new.driver_state}
                )
            )
    if old.driver_version and new.driver_version and old.driver_version != new.driver_version:
        happened.append(
            Happening(
                "driver_reloaded",
                at,
                message=f"driver {old.driver_version} became {new.driver_version}",
                data={"from": old.driver_version, "to": new.driver_version},
            )
        )
    before = {gpu.uuid: gpu for gpu in old.gpus}
    for gpu in new.gpus:
        was = before.get(gpu.uuid)
        if was is not None and was.present and not gpu.present:
            happened.append(
                Happening("gpu_lost", at, gpu.uuid, gpu.pci, f"GPU {gpu.index} is gone")
            )
        elif was is not None and not was.present and gpu.present:
            happened.append(
                Happening("gpu_back", at, gpu.uuid, gpu.pci, f"GPU {gpu.index} is back")
            )
        if was is not None and was.mig != gpu.mig:
            mode = "on" if gpu.mig else "off"
            happened.append(
                Happening("mig_changed", at, gpu.uuid, gpu.pci, f"MIG mode is {mode}",
                          {"mig": gpu.mig})
            )  # fmt: skip
    return happened
