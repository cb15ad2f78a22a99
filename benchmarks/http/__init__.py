"""The HTTP benchmark: the service beside a no-op handler, the client beside other brokers' clients.

Run it with ``python -m benchmarks.http``; ``benchmarks/README.md`` says how to read it.
"""
