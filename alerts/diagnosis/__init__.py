"""Diagnosis of saved logs of a node (kernel log, nvidia-smi): one finding per cause. Pure."""
