"""The defaults every package shares: budget, canvas, tokenizer, model and score threshold."""

DEFAULT_BUDGET = 0.40
"""Share of the dense 16-px grid a detector or a wrapped model reads."""

DEFAULT_CANVAS = (2048, 1152)
"""(long side, short side) in pixels of the canvas an image is fitted to, landscape or portrait."""

DEFAULT_TOKENIZER = "top-hat+gate"
"""Name of the tokenizer a detector reads images by, unless its model says otherwise."""

DEFAULT_MODEL = "vgtok-tiny"
"""The detector that is shipped with the package."""

DEFAULT_SCORE = 0.3
"""Score below which detections are left out; far below it a detector lists all it cannot rule out."""
