"""How Penstock over Redis compares with Redis itself: ``make bench-scale``."""
