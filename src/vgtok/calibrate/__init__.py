"""Retention tables: measure them over a set of images, store and ship them."""
