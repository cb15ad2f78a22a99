"""Benchmarks: each measures Penstock beside a reference in the same run, and prints ratios."""
