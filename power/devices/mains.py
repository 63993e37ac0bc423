"""Mains by country: the voltage of a home, that between two lines of three phases, and the usual breakers."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = (
    "IEC World Plugs and IEC 60038 (nominal voltages); national adoptions of IEC 60898, UL 489 and, in Japan,"
    " article 33 of the interpretation of the technical standards"
)


@dataclass(frozen=True, slots=True)
class Mains:
    """The mains of a country."""

    volts: float
    """Of a home's outlets."""
    between: float
    """Between two lines of three phases."""
    breakers: str
    """The usual class: a value of `breaker.Curve`."""
    split: bool = False
    """Whether homes have two poles half a turn apart, with twice the voltage between them."""
    also: tuple[float, ...] = ()
    """Other voltages of homes in parts of the country."""


def _all(codes: str, mains: Mains) -> dict[str, Mains]:
    return dict.fromkeys(codes.split(), mains)


MAINS = {
    **_all("US CA NA PR VI GU", Mains(120, 208, "UL489", split=True)),
    **_all("VE CO EC CR DO GT HN NI PA SV CU HT JM BS BZ LR", Mains(120, 208, "UL489", split=True)),
    "MX": Mains(127, 220, "UL489", split=True),
    "TW": Mains(110, 220, "UL489", split=True),
    "JP": Mains(100, 200, "JIS", split=True),
    "BR": Mains(220, 380, "IEC-C", also=(127,)),
    "PH": Mains(220, 380, "IEC-C"),
    **_all("CN HK MO KR AR CL PY PE VN KZ KG UZ TJ TM EG ET MA MG", Mains(220, 380, "IEC-C")),
    **_all(
        "EU AT BE BG HR CY CZ DK EE FI FR DE GR HU IE IT LV LT LU MT NL PL PT RO SK SI ES SE", Mains(230, 400, "IEC-C")
    ),
    **_all("UK GB NO CH IS LI MC SM VA AD AL BA ME MK RS XK MD UA BY RU GE AM AZ TR", Mains(230, 400, "IEC-C")),
    **_all("AU NZ IN PK LK NP BD TH SG ID KH LA MM MN UY BO", Mains(230, 400, "IEC-C")),
    **_all("ZA NG GH TZ ZM ZW BW MU DZ TN SN CI CM RW MZ AO IL JO IQ IR AE BH LB YE", Mains(230, 400, "IEC-C")),
    **_all("KE UG QA OM KW MY BN FJ", Mains(240, 415, "IEC-C")),
    "SA": Mains(230, 400, "IEC-C", also=(127,)),
}
"""By country (ISO 3166), with EU and UK. NA is North America."""
