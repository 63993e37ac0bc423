"""A site of one circuit and one machine, from what its owner knows by heart: no file is needed to ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from power.devices.catalogue import SYSTEM_BY_ID, counted_models, key_of
from power.devices.mains import MAINS
from power.plan.remedy import UL_SIZES
from power.site.config import PowerConfig, amps
from power.site.decode import decode
from power.site.machine import HOST_WATTS
from present.units import amperes, exact_watts, volts
from telemetry.errors import ConfigError

CIRCUIT = "circuit"
MACHINE = "rig"
WHERE = "plan"
OUTLETS = {
    **dict.fromkeys(("UK", "GB", "IE", "HK", "SG", "MY", "CY", "MT"), "BS 1363"),
    **dict.fromkeys(("AU", "NZ"), "AS 3112 10 A"),
}
"""The outlet of a home where it bears less than the usual breakers."""
_OPTIONS = {
    "region": "--region",
    f"circuits.{CIRCUIT}.breaker": "--breaker",
    f"circuits.{CIRCUIT}.volts": "--volts",
    f"circuits.{CIRCUIT}.other_w": "--other-watts",
    f"nodes.{MACHINE}.gpus": "--gpus",
    f"nodes.{MACHINE}.profile": "--gpus",
    f"nodes.{MACHINE}.host_watts": "--host-watts",
}
"""Options, by the place in the site of what they say."""


class BreakerQuestion(NamedTuple):
    """Machine, and the breaker that it hangs on."""

    breaker: str
    """Amps on its handle."""
    gpus: Sequence[str]
    """GPUs of the machine, one model each, or a whole system: `4x RTX 5090`, `dgx-h100`."""
    region: str | None = None
    volts: float | None = None
    """Volts of the outlet. [by region; 120 without one]"""
    host_watts: float | None = None
    """Watts of the machine beside its GPUs."""
    other_watts: float = 0.0
    """Watts of what else hangs on the circuit."""


def site_of(asked: BreakerQuestion) -> PowerConfig:
    """Return the site of a question. Raises `ConfigError`, in whose place `option_of` finds the option."""
    parts = [part for text in asked.gpus for part in counted_models("--gpus", text)]
    machine: dict[str, Any] = {"gpus": [f"{count}x {model}" for count, model in parts]}
    if systems := [model for _, model in parts if key_of(model) in SYSTEM_BY_ID]:
        if len(parts) > 1 or parts[0][0] > 1:
            raise ConfigError(
                "--gpus",
                f"{systems[0]} is a whole machine, and one machine is asked of",
                "Write several into a file, and ask with --config.",
            )
        machine = {"profile": systems[0]}
    if asked.host_watts is not None:
        machine["host_watts"] = asked.host_watts
    breaker = amps("--breaker", asked.breaker)
    if asked.region is None and asked.volts is None and breaker not in UL_SIZES:
        raise ConfigError(
            "--breaker",
            f"{amperes(breaker)} is no size of breakers at {volts(MAINS['US'].volts)}, which is meant without a region",
            "Add --region and the two letters of the country: DE, UK, JP.",
        )
    circuit: dict[str, Any] = {"breaker": breaker}
    cord = {"circuit": CIRCUIT}
    machine["cords"] = [cord if (outlet := _outlet(asked)) is None else {**cord, "connector": outlet}]
    if asked.other_watts:
        circuit["other_w"] = asked.other_watts
    if asked.volts is not None:
        circuit["volts"] = asked.volts
    tree = {"circuits": {CIRCUIT: circuit}, "nodes": {MACHINE: machine}}
    return decode(WHERE, tree if asked.region is None else {**tree, "region": asked.region})


def _outlet(asked: BreakerQuestion) -> str | None:
    return None if asked.volts is not None else OUTLETS.get(asked.region or "")


def option_of(error: ConfigError) -> ConfigError:
    """Return an error of a question's site with the option that it is about in place of a setting."""
    place = error.where.removeprefix(f"{WHERE}: ")
    option = _OPTIONS.get(place.partition("[")[0])
    return error if option is None else ConfigError(option, error.problem, error.hint)


def assumed(asked: BreakerQuestion) -> str:
    """Return what was not said and is taken for true, with the options that say it; "" where all was said."""
    parts = []
    if asked.region is None and asked.volts is None:
        parts.append(f"{volts(MAINS['US'].volts)} (--region, --volts)")
    if (outlet := _outlet(asked)) is not None:
        parts.append(f"one outlet, {outlet}")
    systems = any(key_of(text) in SYSTEM_BY_ID for text in asked.gpus)
    if asked.host_watts is None and not systems:
        parts.append(f"{exact_watts(HOST_WATTS)} for the machine beside its GPUs (--host-watts)")
    return f"assumed: {', '.join(parts)}" if parts else ""
