"""Images and their boxes: data sets by name, and synthetic scenes the package renders itself."""
