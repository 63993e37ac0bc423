"""Three aggregators as one on this machine, to try and to kill (docs/cluster.md)."""
