"""Tests of the benchmark itself: ``pytest benchmarks``."""
