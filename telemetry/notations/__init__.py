"""Notations of others, read in one way: lines of the kernel log, PCI addresses, lists of Slurm, links of Redfish."""
