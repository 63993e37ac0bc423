"""Recordings of a bus or a source: written by `collector.commands.recorder`, read by `replay`."""
