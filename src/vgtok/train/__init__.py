"""Recipes, and the loop that follows them: data in, checkpoints out."""
