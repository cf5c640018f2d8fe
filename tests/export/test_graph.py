"""The graph's formulation against the model's own execution, both in torch: every configuration, whole and ragged."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.export.small_models import WINDOWED_EVA02, WINDOWED_VIT, traceable_detector
from vgtok.export.description import graph_inputs, window_buckets
from vgtok.export.graph import DetectorGraph
from vgtok.tokenize.canvas import fit_canvas
from vgtok.tokenize.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("encoder", "changes"),
    [
        ("vit-tiny", {}),
        ("vit-tiny", {"fusion": (), "padding": "dropped"}),
        ("vit-tiny", {"fusion": (32,), "resampling": "area", "position": "corner"}),
        ("vit-tiny", {"proportional": True, "padding": "scaled", "resampling": "bilinear", "position": "mean"}),
        ("vit-tiny", {"spread": 0}),
        ("vit-tiny", {"window": None, "global_blocks": (), "prefix": 1}),
        ("vit-tiny", {"window": None, "global_blocks": (), "prefix": 1, "proportional": True}),
        ("eva02-large", {}),
        ("eva02-large", {"fusion": (), "padding": "scaled"}),
        ("eva02-large", {"window": None, "global_blocks": (), "prefix": 2, "layer_scale": True}),
    ],
)
@pytest.mark.parametrize("size", [(256, 192), (205, 330)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_graph_is_the_model(encoder: str, changes: dict[str, Any], size: tuple[int, int], dynamic: bool) -> None:
    overrides = (WINDOWED_VIT if encoder == "vit-tiny" else WINDOWED_EVA02) | changes
    model = traceable_detector(encoder, overrides).model
    image = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image[: size[1] // 2] = 90
    tokenizer = Tokenizer(budget=0.4, canvas="native")
    canvas = fit_canvas(image, "native")
    tokens = tokenizer.partition(canvas)
    assert min(tokens.counts().values()) > 0
    config = model.encoder.config
    buckets = window_buckets(tokens.extent, config, None if dynamic else len(tokens))
    graph = DetectorGraph(model, tokens.extent, buckets, "query")
    arrays = {name: torch.from_numpy(array) for name, array in graph_inputs(canvas, tokens, config, buckets).items()}
    with torch.inference_mode():
        expected = model.encoder([torch.from_numpy(canvas.image.copy()).permute(2, 0, 1)], [tokens]).maps[0]
        *_, features = graph(**arrays)
    torch.testing.assert_close(features[0], expected, rtol=1e-4, atol=1e-4)
