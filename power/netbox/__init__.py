"""Translation of NetBox's records into a [power] section, ready to paste. Pure: records in, text out.

`records` reads the REST API's objects of older and newer releases; `mapping` translates them; `text`
writes the TOML. What can't be translated becomes a comment in its place.
"""

from __future__ import annotations

from power.netbox.mapping import translate
from power.netbox.text import write

__all__ = ["translate", "write"]
