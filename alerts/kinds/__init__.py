"""The kinds of condition, a file for each family. `alerts.conditions` lists them."""
