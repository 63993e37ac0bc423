"""The tick: `sampler` reads a source, fills `rows`, adds events, and hands a frame on."""
