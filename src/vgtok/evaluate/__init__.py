"""Detections against ground truth, by each benchmark's own protocol: caps, ignored regions, size bands, seeds."""
