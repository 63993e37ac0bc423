"""Rules as data: `rule` reads the TOML files beside it, `conditions` is the union of all conditions."""
