"""Settings of the integration with Home Assistant."""

from __future__ import annotations

import re

import msgspec

from telemetry.errors import ConfigError
from telemetry.wire.mqtt import BrokerConfig

_PREFIX = re.compile(r"[^+#\s\x00/]+(/[^+#\s\x00/]+)*")
SHORTEST, LONGEST = 1.0, 3600.0


class HomeAssistantConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs and circuits as devices of Home Assistant, by MQTT discovery."""

    enabled: bool = False
    """Whether they are published. Switched off again, they are removed from Home Assistant."""
    broker: BrokerConfig | None = None
    """The broker of Home Assistant, where it is not kilowatch's own."""
    prefix: str = "homeassistant"
    """Home Assistant's discovery prefix."""
    every_seconds: float = 10.0
    """Seconds between two updates. What has changed is sent, and everything at every third; a value
    that is not sent for nine of them expires."""

    @property
    def again_seconds(self) -> float:
        """Seconds after which an unchanged state is sent again."""
        return 3 * self.every_seconds

    @property
    def expire_seconds(self) -> int:
        """Seconds after which Home Assistant takes a state as unavailable."""
        return int(9 * self.every_seconds)

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(
                f"{where}.prefix",
                f"{self.prefix!r} can't begin an MQTT topic",
                'Write the discovery prefix of Home Assistant: "homeassistant", unless it was changed there.',
            )
        if not SHORTEST <= self.every_seconds <= LONGEST:
            raise ConfigError(f"{where}.every_seconds", f"it must be {SHORTEST:g} to {LONGEST:g} seconds")

    def check_secrets(self, where: str) -> None:
        """Raise `ConfigError` for a password or certificate that can't be read."""
        if not self.enabled or self.broker is None:
            return
        try:
            self.broker.password()
            self.broker.context()
        except ConfigError as error:
            raise ConfigError(f"{where}.{error.where}", error.problem, error.hint) from error
