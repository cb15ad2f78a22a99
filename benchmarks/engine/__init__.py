"""The engine benchmark: the embedded store against the bare disk and other embedded queues.

Run it with ``python -m benchmarks.engine``; ``benchmarks/README.md`` says how to read it.
"""
