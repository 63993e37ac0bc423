"""Home Assistant by MQTT discovery: GPUs and circuits as its devices (docs/home.md)."""
