"""Speed and memory, always as ratios taken in one run: machines differ, ratios travel."""
