"""`Detector`, the class users call: images of any kind in, results in the coordinates of each image out.

It hides the canvas, the tokens and batching. The budget is an argument of each call, never part of the weights.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_CANVAS, DEFAULT_SCORE, DEFAULT_TOKENIZER
from vgtok.detect.by_windows import detect_by_windows, detect_fitted
from vgtok.detect.config import MAX_DETECTIONS, Auxiliary, Head
from vgtok.detect.model import CoDetr
from vgtok.detect.result import Prepared, Result, Timings, listed_images
from vgtok.encode.precision import convert_weights, dtype_name, find_device, find_dtype, running_in
from vgtok.errors import InputError
from vgtok.slicing.frames import ArrayFrame, Frame
from vgtok.slicing.windows import LARGEST_WHOLE, CanvasChoice, WindowFound, Windows, fitted_canvas, windows_for
from vgtok.tokenize.canvas import Canvas, CanvasSize, ImageLike, fit_canvas, read_image
from vgtok.tokenize.retention import RetentionTable
from vgtok.tokenize.tokenizer import Tokenizer, preset
from vgtok.tokenize.tokens import Tokens

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
"""(H, W, 3) RGB of an image."""

_LOG = logging.getLogger(__name__)


class Detector:
    """A Co-DETR together with its canvas, its retention table and its license note.

    `head`, `budget`, `sparse_head` and `tokenizer_name` are the defaults of each call: the head that predicts, the
    share of tokens an image is read at, whether the head computes fewer positions too, and the tokenizer, one of
    `vgtok.tokenize.PRESETS`. A default budget of 1 means that the model was never trained on coarse tokens.
    `evaluations` are the rows of the table of results in the model card, column to value.

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
        sparse_head: bool = False,
        tokenizer_name: str = DEFAULT_TOKENIZER,
    ) -> None:
        preset(tokenizer_name)
        if not 0 < budget <= 1:
            raise InputError(f"budget: {budget} is not a share above 0 and up to 1")
        self.model = model.eval()
        self.canvas = canvas
        self.table = table
        self.license = license
        self.evaluations = tuple(evaluations)
        self.head = self.model.check_head(head)
        self.budget = budget
        self.sparse_head = sparse_head
        self.tokenizer_name = tokenizer_name
        self.dtype = torch.float32
        self._warned = False

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, *, revision: str | None = None) -> "Detector":
        """Load a detector of this library by folder, shipped name or hub name; reads only safetensors.

        It runs on the CPU in float32. `vgtok.load` also reads released Co-DETR checkpoints, and selects device and
        precision.
        """
        from vgtok.detect.loading import from_pretrained

        return from_pretrained(name_or_path, revision)

    def save_pretrained(
        self, folder: str | Path, *, auxiliary: tuple[Auxiliary, ...] | None = None, half: bool = False
    ) -> None:
        """Write config.json, the weights as safetensors and a model card as README.md, unless there is one already.

        `auxiliary` names the auxiliary heads to keep [default: all]; `half` stores fp16.
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
        """Upload what `save_pretrained` writes to owner/name on the hub as one commit; return the commit's address.

        The repository is created if needed. Log in first with `hf auth login` or HF_TOKEN.
        """
        from vgtok.detect.loading import push

        return push(self, repository, private=private, message=message, auxiliary=auxiliary, half=half)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, in label order."""
        return self.model.config.names

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads that can predict."""
        return ("query", "atss") if "atss" in self.model.config.auxiliary else ("query",)

    @property
    def precision(self) -> str:
        """The name of `dtype`: float32, float16 or bfloat16."""
        return dtype_name(self.dtype)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device, dtype: str | torch.dtype | None = None) -> "Detector":
        """Move the model to a device, convert its weights to a precision if one is given, and return the detector.

        Both as in `vgtok.load`. The conversion to half precision cannot be undone.
        """
        place = find_device(device)
        chosen = self.dtype if dtype is None else find_dtype(dtype, place)
        if chosen is not self.dtype and self.dtype is not torch.float32:
            raise InputError(f"dtype: this model was converted to {self.precision} before; load it again")
        self.model.to(place)
        convert_weights(self.model, chosen)
        self.dtype = chosen
        return self

    @contextmanager
    def running(self) -> Iterator[None]:
        """Enter inference in the detector's precision; parts of `model` may then be called."""
        with torch.inference_mode(), running_in(self.dtype, self.device):
            yield

    def calibrated_tokenizer(self, budget: float, **settings: Any) -> Tokenizer:
        """Return the percentile tokenizer that keeps `budget` on average over the model's own retention table."""
        if self.table is None:
            raise InputError(
                "calibrated_tokenizer: this model has no retention table; use budget= or Tokenizer.calibrated"
            )
        return Tokenizer.calibrated(self.table, budget, canvas=self.canvas, **preset(self.tokenizer_name) | settings)

    @overload
    def __call__(
        self,
        images: list[ImageLike] | tuple[ImageLike, ...],
        *,
        budget: float | None = None,
        tokenizer: Tokenizer | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = DEFAULT_SCORE,
        head: Head | None = None,
        sparse_head: bool | None = None,
        value_range: tuple[float, float] | None = None,
        canvas: CanvasChoice | None = None,
    ) -> list[Result]: ...

    @overload
    def __call__(
        self,
        images: ImageLike,
        *,
        budget: float | None = None,
        tokenizer: Tokenizer | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = DEFAULT_SCORE,
        head: Head | None = None,
        sparse_head: bool | None = None,
        value_range: tuple[float, float] | None = None,
        canvas: CanvasChoice | None = None,
    ) -> Result: ...

    def __call__(
        self,
        images: Any,
        *,
        budget: float | None = None,
        tokenizer: Tokenizer | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = DEFAULT_SCORE,
        head: Head | None = None,
        sparse_head: bool | None = None,
        value_range: tuple[float, float] | None = None,
        canvas: CanvasChoice | None = None,
    ) -> Result | list[Result]:
        """Detect objects in one image, or in a list of images of any sizes as one batch.

        Give either `budget`, the share of the dense grid each image is read at [default: the model's], or a
        `tokenizer` of your own, whose canvas is then used. A budget of 1 runs the dense model. `head` selects the head
        that predicts [default: the model's]. With `sparse_head` the head leaves out the positions of its finest level
        in unsplit 64-px roots [default: the model's]. Detections below `score_threshold` are left out; 0
        keeps all, as evaluation does. `value_range` is the (low, high) of black and white; floats need it.
        Images from `prepare` are run as they are.

        `canvas` says how images are read [default: fitted to the model's canvas, but by windows if a side exceeds 4096
        px]. By windows, the budget is spent over the whole image, and `max_detections` holds in each window.
        """
        for name, value in (("budget", budget), ("canvas", canvas)):
            if value is not None and tokenizer is not None:
                raise InputError(f"{name}: a tokenizer brings its own; give either {name}= or tokenizer=")
        chosen = self._check_head(head)
        sparse = self.sparse_head if sparse_head is None else sparse_head
        given = listed_images(images, max_detections)
        ready: list[Any] = [image if isinstance(image, Prepared) else read_image(image, value_range) for image in given]
        windows = [
            None if tokenizer or isinstance(image, Prepared) else self._windows(canvas, image.shape) for image in ready
        ]
        reader = tokenizer or self.tokenizer(budget, canvas)
        whole = [image for image, parts in zip(ready, windows, strict=True) if parts is None]
        fresh = iter(self._prepared([image for image in whole if not isinstance(image, Prepared)], reader))
        whole = [image if isinstance(image, Prepared) else next(fresh) for image in whole]
        fits = iter(self._predict(whole, max_detections, score_threshold, chosen, sparse) if whole else [])
        predict = self._predictor(max_detections, score_threshold, chosen, sparse)
        results = [
            next(fits)
            if parts is None
            else detect_by_windows(ArrayFrame(image), parts, reader, predict, {}, self.names)
            for image, parts in zip(ready, windows, strict=True)
        ]
        return results if isinstance(images, list | tuple) else results[0]

    def on_frame(
        self,
        frame: Frame,
        *,
        budget: float | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = DEFAULT_SCORE,
        head: Head | None = None,
        sparse_head: bool | None = None,
        canvas: CanvasChoice | None = None,
        finished: MutableMapping[int, WindowFound] | None = None,
    ) -> Result:
        """Detect in a frame that is read in parts, such as a raster file; pixels without data take no budget.

        The arguments are those of a call. `finished` holds the windows that an earlier call finished, by number; every
        further one is added to it.
        """
        sparse = self.sparse_head if sparse_head is None else sparse_head
        predict = self._predictor(max_detections, score_threshold, self._check_head(head), sparse)
        reader = self.tokenizer(budget, canvas)
        windows = self._windows(canvas, (frame.height, frame.width))
        if windows is None:
            return detect_fitted(frame, reader, predict)
        return detect_by_windows(frame, windows, reader, predict, {} if finished is None else finished, self.names)

    def tokenizer(self, budget: float | None = None, canvas: CanvasChoice | None = None) -> Tokenizer:
        """Return the tokenizer a call uses, at a budget [default: the model's] and a canvas [default: the model's]."""
        return Tokenizer(
            self.budget if budget is None else budget,
            canvas=self.canvas if canvas is None else fitted_canvas(canvas, self.canvas),
            **preset(self.tokenizer_name),
        )

    def _windows(self, canvas: CanvasChoice | None, shape: Sequence[int]) -> Windows | None:
        """Return the windows to read an image of shape (height, width, ...) by; ordinary images are fitted: None."""
        if canvas is None and max(shape[:2]) <= LARGEST_WHOLE:
            return None
        return windows_for(canvas, self.canvas, shape)

    def _predictor(
        self, max_detections: int, score_threshold: float, head: Head, sparse_head: bool
    ) -> Callable[[Pixels, Canvas, Tokens], Result]:
        """Return the function from one image, its canvas and its tokens to its result."""

        def predict(image: Pixels, canvas: Canvas, tokens: Tokens) -> Result:
            one = Prepared(image, canvas, tokens, 0.0)
            return self._predict([one], max_detections, score_threshold, head, sparse_head)[0]

        return predict

    def prepare(
        self,
        image: ImageLike,
        *,
        budget: float | None = None,
        tokenizer: Tokenizer | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> Prepared:
        """Read, fit and tokenize an image for a later call; in another thread this overlaps with the network."""
        if budget is not None and tokenizer is not None:
            raise InputError("budget: a tokenizer brings its own; give either budget= or tokenizer=")
        reader = tokenizer or self.tokenizer(budget)
        return self._prepared([read_image(image, value_range)], reader)[0]

    def _prepared(self, pixels: Sequence[Pixels], reader: Tokenizer) -> list[Prepared]:
        started = time.perf_counter()
        canvases = [reader.pad(self.fit(image, reader.canvas)) for image in pixels]
        tokens = self._partition(canvases, reader)
        share = (time.perf_counter() - started) / max(len(pixels), 1)
        parts = zip(pixels, canvases, tokens, strict=True)
        return [Prepared(image, canvas, partition, share) for image, canvas, partition in parts]

    def _partition(self, canvases: Sequence[Canvas], reader: Tokenizer) -> list[Tokens]:
        """Partition canvases: on a GPU there, to the same tokens."""
        if self.device.type != "cuda":
            return [reader.partition(canvas) for canvas in canvases]
        found = [reader.batch(self._pixels(canvas)[None])[0] for canvas in canvases]
        return [
            replace(tokens, source_height=canvas.source_size[0], source_width=canvas.source_size[1])
            for tokens, canvas in zip(found, canvases, strict=True)
        ]

    def fit(self, image: Pixels, size: CanvasSize) -> Canvas:
        """Fit an (H, W, 3) image on the canvas the model reads it from."""
        return fit_canvas(image, size)

    def on_canvas(
        self,
        image: Pixels,
        canvas: Canvas,
        tokens: Tokens,
        *,
        max_detections: int = MAX_DETECTIONS,
        head: Head | None = None,
    ) -> Result:
        """Return all detections, of any score, of an (H, W, 3) image by a canvas and a partition made before.

        Use it for many partitions of one image: reading, resizing and scoring then run once. `timings.tokenizer` is 0.
        """
        chosen = self._check_head(head)
        one = Prepared(image, canvas, tokens, 0.0)
        return self._predict([one], max_detections, 0.0, chosen, self.sparse_head)[0]

    def _predict(
        self, images: Sequence[Prepared], max_detections: int, score_threshold: float, head: Head, sparse_head: bool
    ) -> list[Result]:
        """Return the results of prepared images, run as one batch."""
        tokens = [image.tokens for image in images]
        self._warn_of_coarse_tokens(tokens)
        with self.running():
            marks = [self._now()]
            maps = self.model.encoder([self._pixels(image.canvas) for image in images], tokens).maps
            marks.append(self._now())
            sizes = [(partition.height, partition.width) for partition in tokens]
            sites = self.model.sites(maps, tokens) if sparse_head else None
            predictions = self.model.predict_maps(maps, sizes, max_detections, head, sites)
            marks.append(self._now())
        share = 1000 / len(images)
        encoder, rest = (marks[1] - marks[0]) * share, (marks[2] - marks[1]) * share
        return [
            Result.from_canvas(
                tuple(part.float().cpu().numpy() for part in prediction),
                image.canvas,
                score_threshold=score_threshold,
                class_names=self.names,
                tokens=image.tokens,
                timings=Timings(1000 * image.seconds, encoder, rest),
                image=image.pixels,
            )
            for prediction, image in zip(predictions, images, strict=True)
        ]

    def _check_head(self, head: Head | None) -> Head:
        return self.model.check_head(head or self.head)

    def _warn_of_coarse_tokens(self, tokens: Sequence[Tokens]) -> None:
        """Warn once if a model that was never trained on coarse tokens is given some."""
        if self._warned or self.budget < 1 or all(len(partition) == partition.dense for partition in tokens):
            return
        self._warned = True
        _LOG.warning(
            "note: this model was never trained on coarse tokens and loses accuracy below budget 1, its default; "
            "finetune it at the budget you want, or use budget=1"
        )

    def _pixels(self, canvas: Canvas) -> Tensor:
        """Return the valid pixels of a canvas as (3, H, W) uint8 on the model's device."""
        # Copied: an image that needed no resizing is the caller's own memory, which may be read-only.
        return torch.from_numpy(canvas.image.copy()).permute(2, 0, 1).to(self.device)

    def _now(self) -> float:
        """Return the time in seconds, after the device has finished what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
