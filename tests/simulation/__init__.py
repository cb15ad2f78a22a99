"""Random histories of many clients over a store whose machine fails in every way it can.

- `workload` draws the calls, `clients` make them, `history` keeps what was asked and answered;
- `host` is the machine: a simulated disk (`files`), the log's writer (`committer`) and slow reads
  (`executor`) that move only when they are told to, and `faults` that strike them;
- `checker` and `reader` judge the answers, `twin` the state after each recovery, and `drain`
  accounts for every message at the end;
- `simulation` plays one history, `runner` any number of them.

Everything is drawn from one seed, so a history can be played again: ``make simulate SEED=123``.
"""
