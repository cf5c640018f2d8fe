"""A whole detector of transformers behind the interface of `vgtok.Detector`: images in, results in their pixels out."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vgtok.defaults import DEFAULT_TOKENIZER
from vgtok.detect.config import Auxiliary, Head
from vgtok.detect.detector import Detector, Pixels
from vgtok.detect.result import Prepared, Result, Timings
from vgtok.errors import InputError
from vgtok.hosts.adapters import Host
from vgtok.hosts.predictions import Predictions
from vgtok.hosts.preprocessing import ModelInput, Preprocessing
from vgtok.hosts.wrapping import Wrapped, given_partitions, wrap
from vgtok.slicing.windows import CanvasChoice
from vgtok.tokenize.canvas import Canvas, CanvasSize, fit_canvas
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokens import Tokens

_ONLY_TRANSFORMERS = "this is a model of transformers; use detector.model.{method} of that library"


class HostDetector(Detector):
    """A detector of transformers, run at a budget; by default at 1, as it was trained.

    Its own processor decides the size of the input; the canvas is that input, with 16 px for each patch.
    """

    def __init__(
        self,
        model: nn.Module,
        host: Host,
        preprocessing: Preprocessing,
        names: tuple[str, ...],
        *,
        queries: dict[str, Tensor] | None = None,
        license: str = "",
    ) -> None:
        mean, std = preprocessing.normalization or ((0.0,) * 3, (1.0,) * 3)
        self.model: Any = wrap(model.eval(), budget=1.0, mean=mean, std=std)
        self.host, self.preprocessing, self.queries = host, preprocessing, queries or {}
        self._names = names
        self.canvas = "native"
        self.table = None
        self.license = license
        self.evaluations = ()
        self.head = "query"
        self.budget = 1.0
        self.sparse_head = False
        self.tokenizer_name = DEFAULT_TOKENIZER
        self.dtype = torch.float32
        self._warned = False

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, in label order."""
        return self._names

    @property
    def heads(self) -> tuple[Head, ...]:
        """The one head of the model."""
        return ("query",)

    def save_pretrained(
        self, folder: str | Path, *, auxiliary: tuple[Auxiliary, ...] | None = None, half: bool = False
    ) -> None:
        """Refuse: transformers saves its models."""
        raise InputError(f"save_pretrained: {_ONLY_TRANSFORMERS.format(method='save_pretrained')}")

    def push_to_hub(
        self,
        repository: str,
        *,
        private: bool = False,
        message: str = "",
        auxiliary: tuple[Auxiliary, ...] | None = None,
        half: bool = False,
    ) -> str:
        """Refuse: transformers uploads its models."""
        raise InputError(f"push_to_hub: {_ONLY_TRANSFORMERS.format(method='push_to_hub')}")

    # Its processor fits every image to one size: no frame is read in parts.
    on_frame = None  # type: ignore[assignment]

    def _windows(self, canvas: CanvasChoice | None, shape: Sequence[int]) -> None:
        if canvas is not None and canvas != self.canvas:
            raise InputError(
                f"canvas: the processor of a {self.host.name} decides the size of its images; leave it out"
            )

    def _check_head(self, head: Head | None) -> Head:
        if head not in (None, "query"):
            raise InputError(f"head: a {self.host.name} has no '{head}' head; leave it out")
        return "query"

    def fit(self, image: Pixels, size: CanvasSize) -> Canvas:
        """Return the input of the model as a canvas, whatever the size asked for."""
        return self._canvas(self.preprocessing(image), image)

    def _canvas(self, prepared: ModelInput, image: Pixels) -> Canvas:
        """Return the part of a prepared input that the image fills, with 16 px for each patch."""
        wrapped: Wrapped = self.model.vgtok
        cells = wrapped.cell_images(prepared.pixel_values[None])[0]
        height, width = (
            max(1, min(round(side * filled / whole), side))
            for side, filled, whole in zip(
                cells.shape[1:], (prepared.height, prepared.width), prepared.pixel_values.shape[1:], strict=True
            )
        )
        pixels = cells[:, :height, :width].permute(1, 2, 0).contiguous().numpy()
        return replace(fit_canvas(pixels, "native"), source_height=image.shape[0], source_width=image.shape[1])

    def _predict(
        self, images: Sequence[Prepared], max_detections: int, score_threshold: float, head: Head, sparse_head: bool
    ) -> list[Result]:
        if sparse_head:
            raise InputError(f"sparse_head: a {self.host.name} has no such head; leave it out")
        tokens = [image.tokens for image in images]
        self._warn_of_coarse_tokens(tokens)
        inputs = [self.preprocessing(image.pixels) for image in images]
        started = self._now()
        found: dict[int, Predictions] = {}
        # Inputs of one size run as one batch.
        order = sorted(range(len(images)), key=lambda number: tuple(inputs[number].pixel_values.shape))
        for _, group in groupby(order, key=lambda number: inputs[number].pixel_values.shape):
            chosen = list(group)
            found |= zip(chosen, self._run(inputs, tokens, chosen, max_detections), strict=True)
        spent = (self._now() - started) * 1000 / len(images)
        return [
            self._result(
                found[number],
                inputs[number],
                image.pixels,
                image.tokens,
                Timings(1000 * image.seconds, spent, 0.0),
                score_threshold,
            )
            for number, image in enumerate(images)
        ]

    def _run(
        self, prepared: Sequence[ModelInput], tokens: Sequence[Tokens], chosen: Sequence[int], most: int
    ) -> list[Predictions]:
        """Return what the model finds in the chosen images, all of one size."""
        batch = torch.stack([prepared[number].pixel_values for number in chosen]).to(self.device)
        grid = tuple(side // self.model.vgtok.patch for side in batch.shape[2:])
        whole = [cover_padding(tokens[number], (grid[0], grid[1])) for number in chosen]
        queries = {name: ids.to(self.device).repeat(len(chosen), 1) for name, ids in self.queries.items()}
        with self.running(), given_partitions(whole):
            output = self.model(pixel_values=batch, **queries)
            assert self.host.predict is not None
            return [Predictions(*(part.float().cpu() for part in one)) for one in self.host.predict(output, most)]

    def _result(
        self,
        found: Predictions,
        prepared: ModelInput,
        image: Pixels,
        tokens: Tokens,
        timings: Timings,
        score_threshold: float,
    ) -> Result:
        height, width = image.shape[:2]
        # Shares of the input to pixels of the image, of which the input may show more than there is.
        across = prepared.pixel_values.shape[2] / prepared.width * width
        down = prepared.pixel_values.shape[1] / prepared.height * height
        x, y, w, h = found.boxes.double().numpy().T * np.array([across, down, across, down])[:, None]
        limits = np.array([width, height, width, height], dtype=np.float64)
        boxes = np.clip(np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], axis=1), 0.0, limits)
        scores, labels = found.scores.numpy(), found.labels.numpy().astype(np.int64)
        kept = (scores >= score_threshold) & (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        kept &= (labels < len(self.names)) & (scores > 0)
        return Result(boxes[kept], scores[kept], labels[kept], self.names, tokens, timings, image)


def cover_padding(tokens: Tokens, grid: tuple[int, int]) -> Tokens:
    """Add tokens over the padding of an input of (rows, columns) cells, as large as fit.

    If every cell of the image has a token of its own, so has every cell of the padding: the host's own grid.
    """
    rows, columns = grid
    if (tokens.extent.rows(CELL), tokens.extent.columns(CELL)) == grid:
        return tokens
    free = np.ones(grid, dtype=bool)
    for x, y, size in zip(tokens.x // CELL, tokens.y // CELL, tokens.sizes // CELL, strict=True):
        free[y : y + size, x : x + size] = False
    spans = (1,) if len(tokens) == tokens.dense else (4, 2, 1)
    added: list[tuple[int, int, int]] = []
    for span in spans:
        for row in range(0, rows, span):
            for column in range(0, columns, span):
                # At a ragged edge a token reaches beyond the grid.
                if free[row : row + span, column : column + span].all():
                    free[row : row + span, column : column + span] = False
                    added.append((column, row, span))
    x, y, size = np.array(added, dtype=np.int32).reshape(-1, 3).T * np.int32(CELL)
    return replace(
        tokens,
        x=np.concatenate([tokens.x, x]),
        y=np.concatenate([tokens.y, y]),
        sizes=np.concatenate([tokens.sizes, size]),
        height=rows * CELL,
        width=columns * CELL,
    )
