"""What works on a data directory that no store has open: look at it, check it, repair it.

`survey` and `verify` only read. `repair` makes a damaged directory startable again: `salvage` reads
all that is readable (`damage` walks past the holes, `gapped` says what events behind a hole still
mean), and `repair` writes it down anew.
"""
