"""The web page and its HTTP endpoint: a frame in, tokens and detections side by side out."""
