"""Threads that decode into types at the same moment."""

import subprocess
import sys

RACE = """
import sys, threading
import msgspec
from telemetry.text.decoders import of_msgpack

sys.setswitchinterval(1e-6)
failed = []
for _ in range(200):
    kind = int
    for depth in range(8):  # each has the one before as a field, as the parts of a page do
        kind = msgspec.defstruct(f"Depth{depth}", [(f"f{n}", "int | None", None) for n in range(10)] + [("below", kind, None)])
    together = threading.Barrier(4)
    body = msgspec.msgpack.encode({"below": {"below": {"f3": 3}}})
    def decode():
        together.wait()
        try:
            assert of_msgpack(kind).decode(body).below.below.f3 == 3
        except Exception as error:
            failed.append(repr(error))
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
sys.exit("; ".join(failed) or 0)
"""


def test_threads_decode_into_new_types_at_once() -> None:
    """With decoders that each thread builds for itself the process dies of a segmentation fault within a few rounds."""
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
