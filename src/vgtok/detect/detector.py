"""The detector a user holds: images of any kind in, results in the caller's pixels out.

It hides canvas, tokens, batches and precision; the budget is an argument of each call, never part of the weights.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_CANVAS
from vgtok.detect.config import MAX_DETECTIONS, Auxiliary, Head
from vgtok.detect.model import CoDetr
from vgtok.detect.result import Result, Timings
from vgtok.errors import InputError
from vgtok.tokenize.canvas import Canvas, CanvasSize, fit_canvas
from vgtok.tokenize.images import ImageLike, read_image
from vgtok.tokenize.retention import RetentionTable
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
"""(H, W, 3) RGB of an image."""

_LOG = logging.getLogger(__name__)


class Detector:
    """A Co-DETR with what it needs to be used: canvas, retention table, license note.

    `head` is the one that predicts and `budget` the share of tokens an image is read at unless a call names another; a
    budget of 1 means that the model was never trained on coarse tokens. `evaluations` are rows of what was measured
    with it, column to value, which its model card shows.

    >>> detector = vgtok.load("model")                    # doctest: +SKIP
    >>> result = detector("frame.jpg", budget=0.40)       # doctest: +SKIP
    >>> result.plot().save("found.png")                   # doctest: +SKIP
    """

    def __init__(
        self,
        model: CoDetr,
        *,
        canvas: CanvasSize = DEFAULT_CANVAS,
        table: RetentionTable | None = None,
        license: str = "",
        evaluations: Sequence[Mapping[str, Any]] = (),
        head: Head = "query",
        budget: float = DEFAULT_BUDGET,
    ) -> None:
        if not 0 < budget <= 1:
            raise InputError(f"budget: {budget} is not a share above 0 and up to 1")
        self.model = model.eval()
        self.canvas = canvas
        self.table = table
        self.license = license
        self.evaluations = tuple(evaluations)
        self.head = self.model.check_head(head)
        self.budget = budget
        self._told = False

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, *, revision: str | None = None) -> "Detector":
        """A detector of this library by folder, shipped name or hub name, on the CPU; only safetensors are read.

        `vgtok.load` also takes released Co-DETR checkpoints, and uses the GPU where there is one.
        """
        from vgtok.detect.loading import from_pretrained

        return from_pretrained(name_or_path, revision)

    def save_pretrained(
        self, folder: str | Path, *, auxiliary: tuple[Auxiliary, ...] | None = None, half: bool = False
    ) -> None:
        """Write config.json, the weights as safetensors and, unless there is one, a model card as README.md.

        `auxiliary` names the heads beside the query head to keep, all unless told otherwise; `half` stores fp16.
        """
        from vgtok.detect.saving import save_with_card

        folder = Path(folder)
        save_with_card(self, folder, folder.resolve().name, auxiliary=auxiliary, half=half)

    def push_to_hub(
        self,
        repository: str,
        *,
        private: bool = False,
        message: str = "Upload a vgtok detector",
        auxiliary: tuple[Auxiliary, ...] | None = None,
        half: bool = False,
    ) -> str:
        """Upload what `save_pretrained` writes to owner/name on the hub as one commit; returns its address.

        The repository is made where there is none, private where asked; log in first with `hf auth login` or HF_TOKEN.
        """
        from vgtok.detect.loading import push

        return push(self, repository, private=private, message=message, auxiliary=auxiliary, half=half)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, in label order."""
        return self.model.config.names

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> "Detector":
        """Move the model; returns the detector."""
        self.model.to(device)
        return self

    def calibrated_tokenizer(self, budget: float, **settings: Any) -> Tokenizer:
        """The percentile tokenizer whose mean over the images of the model's own retention table is `budget`."""
        if self.table is None:
            raise InputError(
                "calibrated_tokenizer: this model carries no retention table; use budget= or Tokenizer.calibrated"
            )
        return Tokenizer.calibrated(self.table, budget, canvas=self.canvas, **settings)

    @overload
    def __call__(
        self,
        images: list[ImageLike] | tuple[ImageLike, ...],
        *,
        budget: float | None = None,
        tokenizer: Tokenizer | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = 0.0,
        head: Head | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> list[Result]: ...

    @overload
    def __call__(
        self,
        images: ImageLike,
        *,
        budget: float | None = None,
        tokenizer: Tokenizer | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = 0.0,
        head: Head | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> Result: ...

    def __call__(
        self,
        images: Any,
        *,
        budget: float | None = None,
        tokenizer: Tokenizer | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = 0.0,
        head: Head | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> Result | list[Result]:
        """Detect in one image, or in a list of images of any sizes as one batch.

        Give either `budget`, the share of the dense grid each image is read at (the model's own default if you give
        none, 1 is the dense model), or a `tokenizer` of your own, whose canvas then counts. `head` "atss" reads the
        one-stage head where the model has it. `value_range` is the (low, high) of black and white, which floats need.
        """
        if budget is not None and tokenizer is not None:
            raise InputError("budget: a tokenizer brings its own; give either budget= or tokenizer=")
        if max_detections < 1:
            raise InputError(f"max_detections: {max_detections} is not a number of detections, 1 or more")
        reader = tokenizer or Tokenizer(self.budget if budget is None else budget, canvas=self.canvas)
        several = isinstance(images, list | tuple)
        chosen = self.model.check_head(head or self.head)
        pixels = [read_image(image, value_range) for image in (images if several else [images])]
        results = self._detect(pixels, reader, max_detections, score_threshold, chosen)
        return results if several else results[0]

    def _detect(
        self, pixels: Sequence[Pixels], reader: Tokenizer, max_detections: int, score_threshold: float, head: Head
    ) -> list[Result]:
        if not pixels:
            return []
        started = time.perf_counter()
        canvases = [fit_canvas(image, reader.canvas) for image in pixels]
        tokens = [reader.partition(canvas) for canvas in canvases]
        tokenized = time.perf_counter() - started
        return self._predict(pixels, canvases, tokens, tokenized, max_detections, score_threshold, head)

    def on_canvas(
        self,
        image: Pixels,
        canvas: Canvas,
        tokens: Tokens,
        *,
        max_detections: int = MAX_DETECTIONS,
        head: Head | None = None,
    ) -> Result:
        """Detect in an (H, W, 3) image that already lies on its canvas, by a partition made before.

        For many partitions of one frame: reading, resizing and scoring then happen once. The tokenizer's time is 0.
        """
        return self._predict(
            [image], [canvas], [tokens], 0.0, max_detections, 0.0, self.model.check_head(head or self.head)
        )[0]

    def _predict(
        self,
        pixels: Sequence[Pixels],
        canvases: Sequence[Canvas],
        tokens: Sequence[Tokens],
        tokenized: float,
        max_detections: int,
        score_threshold: float,
        head: Head,
    ) -> list[Result]:
        """Results of images on their canvases; `tokenized` is the seconds their partitions took."""
        self._tell_of_coarse_tokens(tokens)
        clock = _Clock(self.device)
        with torch.inference_mode(), _timed(self.model.encoder, clock):
            begun = clock.now()
            predictions = self.model.predict([self._frame(canvas) for canvas in canvases], tokens, max_detections, head)
            taken = clock.now() - begun
        share = 1000 / len(pixels)
        timings = Timings(tokenized * share, clock.spent * share, (taken - clock.spent) * share)
        return [
            self._result(prediction, canvas, partition, image, timings, score_threshold)
            for prediction, canvas, partition, image in zip(predictions, canvases, tokens, pixels, strict=True)
        ]

    def _tell_of_coarse_tokens(self, tokens: Sequence[Tokens]) -> None:
        """Say once that a model which was never trained on coarse tokens is being given some."""
        if self._told or self.budget < 1 or all(len(partition) == partition.dense for partition in tokens):
            return
        self._told = True
        _LOG.warning(
            "note: this model was never trained on coarse tokens and loses accuracy below budget 1, its default; "
            "finetune it at the budget you want, or use budget=1"
        )

    def _frame(self, canvas: Canvas) -> Tensor:
        """The valid pixels of a canvas as (3, H, W) uint8 on the model's device."""
        # Copied: an image that needed no resizing is the caller's own memory, which may be read-only.
        return torch.from_numpy(canvas.image.copy()).permute(2, 0, 1).to(self.device)

    def _result(
        self,
        prediction: tuple[Tensor, Tensor, Tensor],
        canvas: Canvas,
        tokens: Tokens,
        image: Pixels,
        timings: Timings,
        score_threshold: float,
    ) -> Result:
        boxes, scores, labels = (part.float().cpu().numpy() for part in prediction)
        placed = canvas.to_source(boxes)
        # A box wholly in the padding is clipped to nothing.
        kept = (scores >= score_threshold) & (placed[:, 2] > placed[:, 0]) & (placed[:, 3] > placed[:, 1])
        return Result(
            boxes=placed[kept],
            scores=scores[kept],
            labels=labels[kept].astype(np.int64),
            class_names=self.names,
            tokens=tokens,
            timings=timings,
            image=image,
        )


class _Clock:
    """Seconds on the device: a GPU works behind the program's back, so each reading waits for it."""

    def __init__(self, device: torch.device) -> None:
        self._wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        self.spent = 0.0

    def now(self) -> float:
        self._wait()
        return time.perf_counter()


@contextmanager
def _timed(module: nn.Module, clock: _Clock) -> Iterator[None]:
    """Add the time `module` takes inside the block to the clock's `spent`."""

    def before(*_: object) -> None:
        clock.spent -= clock.now()

    def after(*_: object) -> None:
        clock.spent += clock.now()

    hooks = [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
