"""nvidia-smi as a source: saved `nvidia-smi -q -x` and `nvidia-smi -q` files, and the live command.

Both forms become a `Document` (raw words by path), which one conversion turns into readings.
"""
