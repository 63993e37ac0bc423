"""Sources whose driver is read in a probe process (`collector.probe`): the vendor-neutral part.

`source` turns a probe's replies into rows, and its failures into gaps, states and events; a vendor adds the
driver of its probe process and its own words for failures (`states.Wording`).
"""
