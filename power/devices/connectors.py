"""Connectors, inlets and outlets: the current that each may carry.

A plug of NEMA follows NEC 210.21(B)(2): a load on one cord takes at most 80 % of the receptacle. The rated
current of an IEC, national European or IEC 60309 connector is the one that it carries; where North America
lists another rating for the same shape, that counts there, with the same 80 %.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from telemetry.errors import ConfigError, did_you_mean

_NEC_SHARE = 0.8
_IEC320 = "IEC 60320-1; UL 60320-1 for North America"
_NEMA = "NEMA WD 6; NEC 210.21(B)(2)"
_IEC309 = "IEC 60309-1 and -2; UL 1682 for North America"


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector by its usual name."""

    name: str
    amps: float | None
    """Rated current outside North America; None where it is used there only."""
    nema_amps: float | None
    """Rated current in North America; None where it is not listed there."""
    volts: tuple[float, float]
    """Lowest and highest nominal voltage between the poles that a load uses."""
    source: str

    def limit_amps(self, north_america: bool) -> float:
        """Return the highest current that a load may draw through it for hours."""
        if self.nema_amps is not None and (north_america or self.amps is None):
            return _NEC_SHARE * self.nema_amps
        return self.amps or 0.0


def _nema(name: str, amps: float, volts: tuple[float, float]) -> Connector:
    return Connector(name, None, amps, volts, _NEMA)


_HOME, _TWO, _HIGH = (110.0, 127.0), (200.0, 250.0), (110.0, 250.0)
CONNECTORS = (
    Connector("C5", 2.5, 2.5, _HIGH, _IEC320),
    Connector("C7", 2.5, 2.5, _HIGH, _IEC320),
    Connector("C13", 10, 15, _HIGH, _IEC320),
    Connector("C14", 10, 15, _HIGH, _IEC320),
    Connector("C15", 10, 15, _HIGH, _IEC320),
    Connector("C19", 16, 20, _HIGH, _IEC320),
    Connector("C20", 16, 20, _HIGH, _IEC320),
    Connector("C21", 16, 20, _HIGH, _IEC320),
    _nema("5-15", 15, _HOME), _nema("5-20", 20, _HOME), _nema("5-30", 30, _HOME),
    _nema("L5-15", 15, _HOME), _nema("L5-20", 20, _HOME), _nema("L5-30", 30, _HOME),
    _nema("6-15", 15, _TWO), _nema("6-20", 20, _TWO), _nema("6-30", 30, _TWO), _nema("6-50", 50, _TWO),
    _nema("L6-15", 15, _TWO), _nema("L6-20", 20, _TWO), _nema("L6-30", 30, _TWO),
    _nema("14-30", 30, (110.0, 250.0)), _nema("14-50", 50, (110.0, 250.0)),
    _nema("L14-20", 20, (110.0, 250.0)), _nema("L14-30", 30, (110.0, 250.0)),
    _nema("L15-20", 20, _TWO), _nema("L15-30", 30, _TWO),
    _nema("L21-20", 20, (110.0, 208.0)), _nema("L21-30", 30, (110.0, 208.0)),
    _nema("L22-20", 20, (277.0, 480.0)), _nema("L22-30", 30, (277.0, 480.0)),
    *(
        Connector(f"CEE {amps}", amps, ul, (100.0, 500.0), _IEC309)
        for amps, ul in ((16, 20), (32, 30), (63, 60), (125, 100))
    ),
    Connector("Schuko", 16, None, _TWO, "CEE 7/4, DIN 49441"),
    Connector("CEE 7/5", 16, None, _TWO, "CEE 7/5, NF C 61-314"),
    Connector("BS 1363", 13, None, _TWO, "BS 1363-1"),
    Connector("AS 3112 10 A", 10, None, _TWO, "AS/NZS 3112"),
    Connector("AS 3112 15 A", 15, None, _TWO, "AS/NZS 3112"),
    Connector("T13", 10, None, _TWO, "SN 441011"),
    Connector("T23", 16, None, _TWO, "SN 441011"),
    Connector("CEI 23-50 10 A", 10, None, _TWO, "CEI 23-50"),
    Connector("CEI 23-50 16 A", 16, None, _TWO, "CEI 23-50"),
    Connector("NBR 14136 10 A", 10, None, (110.0, 250.0), "NBR 14136"),
    Connector("NBR 14136 20 A", 20, None, (110.0, 250.0), "NBR 14136"),
    Connector("IS 1293 6 A", 6, None, _TWO, "IS 1293"),
    Connector("IS 1293 16 A", 16, None, _TWO, "IS 1293"),
    Connector("SANS 164-1", 16, None, _TWO, "SANS 164-1"),
    Connector("SANS 164-2", 16, None, _TWO, "SANS 164-2"),
    Connector("GB 2099 10 A", 10, None, _TWO, "GB 2099.1, GB 1002"),
    Connector("GB 2099 16 A", 16, None, _TWO, "GB 2099.1, GB 1002"),
    Connector("KS C 8305", 16, None, _TWO, "KS C 8305"),
    Connector("JIS C 8303 15 A", 15, None, (100.0, 127.0), "JIS C 8303"),
    Connector("JIS C 8303 20 A", 20, None, (100.0, 250.0), "JIS C 8303"),
)  # fmt: skip
"""Every connector that is known."""


def _key(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("nema"))
    return re.sub(r"(?<=\d)[rp]$", "", plain)  # of a receptacle or plug


_BY_KEY = {_key(one.name): one for one in CONNECTORS} | {
    _key(alias): one
    for one in CONNECTORS
    for alias in (
        {"Schuko": ("CEE 7/4", "CEE 7/3", "type F"), "BS 1363": ("type G",)}
        | {f"CEE {a}": (f"IEC 60309 {a} A", f"CEE {a}A", f"60309-{a}") for a in (16, 32, 63, 125)}
    ).get(one.name, ())
}


def find_connector(where: str, name: str) -> Connector:
    """Return the connector of this name, however it is spelled. Raises `ConfigError` with the closest."""
    found = _BY_KEY.get(_key(name))
    if found is None:
        names = [one.name for one in CONNECTORS]
        cure = did_you_mean(name, names) or f"Known: {', '.join(names)}."
        raise ConfigError(where, f"there is no connector {name!r}", cure)
    return found
