"""From NetBox's records to a [power] section, ready to paste. Pure: records in, text out.

`records` understands what the REST API says, in its older and newer forms; `mapping` decides what it
means here; `text` writes it down. What can't be carried over is a comment where it belongs.
"""

from __future__ import annotations

from power.netbox.mapping import translate
from power.netbox.text import write

__all__ = ["translate", "write"]
