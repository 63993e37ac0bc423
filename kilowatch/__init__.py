"""The command: reads flags and files, wires the parts together, prints what they say."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("kilowatch")
except PackageNotFoundError:  # run from a source tree that nobody installed
    VERSION = "0.source"
