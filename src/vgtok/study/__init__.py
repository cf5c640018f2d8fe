"""Reproduce the paper: every table and figure is a study that prints measured values beside the paper's."""
