"""Recordings of a bus or a source: written by `recorder`, read by `replay`."""
