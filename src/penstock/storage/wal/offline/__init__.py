"""Tools for a data directory that no store has open: inspect, verify, repair.

`survey` and `verify` only read. `repair` makes a damaged directory usable again: `salvage` reads
everything readable (`damage` reads past the damage, `gapped` defines what events after a gap still
mean), and `repair` writes it back.
"""
