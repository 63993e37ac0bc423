"""Ray's own runtime on this machine."""
