"""Meters: what a plug, clamp, PDU, BMC or UPS says, turned into readings. Pure.

A meter's configuration is its own class, named in `power.meters.config.Meter`. What comes in becomes
a `Sample` (which part of the meter, which quantities), and `power.meters.meter_record` turns samples into
`MeterReading`s of the circuit, node or UPS that the part is put on. The shell is `aggregator.meters`.
"""
