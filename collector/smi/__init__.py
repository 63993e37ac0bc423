"""nvidia-smi as a source: saved `nvidia-smi -q -x` and `nvidia-smi -q` files, and the live command.

Both forms become one `Document` (raw words by path), and one conversion turns words into readings.
"""
