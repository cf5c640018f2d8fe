"""Pixels to Tokens: canvas, score map, pyramid, split, gate. numpy and OpenCV only."""
