"""The whole of kilowatch on one machine: `kilowatch run` and `kilowatch demo`."""
