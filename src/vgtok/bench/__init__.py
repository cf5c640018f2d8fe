"""Benchmarks of speed and memory, as ratios within one run: machines differ, ratios carry over."""
