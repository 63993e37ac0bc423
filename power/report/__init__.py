"""Reports: parts, draw and cost of a cluster; energy, tariffs, the ledger of days, a comparison of two."""
