"""The whole stack on one machine: `python -m deploy.stack` (or `make stack`)."""
