"""Pictures: partitions over frames, plots of studies."""
