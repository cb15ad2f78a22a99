"""The fan-out benchmark: callbacks beside a bare HTTP client that posts the same.

Run it with ``python -m benchmarks.fanout``; ``benchmarks/README.md`` says how to read it.
"""
