"""The paper again: one module per table or figure, each prints paper next to measured."""
