"""From a message to the fleet and the store: `router`, `sequence` with `ledger` and `backfill`, `batcher`.

`layout` and `ids` say where rows and columns go; `dead_letters` holds samples of what can't be read.
"""
