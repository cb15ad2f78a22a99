"""What all benchmarks share: bars, verdicts, samples, the table, and the command line."""
