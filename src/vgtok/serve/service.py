"""Answer one request: settings and pixels in, detections, counts and pictures out."""

import base64
import io
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_CANVAS
from vgtok.serve.limits import RefusedError
from vgtok.tokenize.canvas import Canvas, CanvasSize, fit_canvas
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer
from vgtok.tokenize.tokens import Tokens

if TYPE_CHECKING:
    from vgtok.detect.detector import Detector
    from vgtok.detect.result import Result


@dataclass(frozen=True)
class Settings:
    """How a frame is read: the controls of the page and the parameters of the endpoint.

    Without a `budget` a frame is read at the model's own.
    """

    budget: float | None = None
    rank: float = SHIPPED_RANK
    scorer: str = "tophat"
    splitter: str = "quadtree"

    def tokenizer(self, canvas: CanvasSize) -> Tokenizer:
        """The tokenizer of these settings; InputError names the one that cannot be."""
        return Tokenizer(
            budget=self.budget,
            rank=self.rank,
            scorer=self.scorer,
            splitter=self.splitter,  # type: ignore[arg-type]  # the tokenizer refuses other names itself
            canvas=canvas,
        )


@dataclass(frozen=True)
class Picture:
    """The frame as it was sent."""

    name: str
    width: int
    height: int


@dataclass(frozen=True)
class TokenCount:
    """Tokens kept, those of the dense 16-px grid, their ratio, and how many there are of each side in pixels."""

    kept: int
    dense: int
    share: float
    sizes: dict[str, int]


@dataclass(frozen=True)
class Gflops:
    """Cost of this frame from pixels to boxes at these tokens, and with the dense grid, in 10^9 FLOPs."""

    used: float
    dense: float


@dataclass(frozen=True)
class Milliseconds:
    """Time by stage; null where the stage did not run."""

    tokenizer: float
    encoder: float | None = None
    head: float | None = None


@dataclass(frozen=True)
class Category:
    """A class of the model: its number in `detections` and its name."""

    id: int
    name: str


@dataclass(frozen=True)
class Detection:
    """A row of a COCO results file; `bbox` is x, y, width, height in pixels of the frame as it was sent."""

    image_id: str
    category_id: int
    bbox: list[float]
    score: float


@dataclass(frozen=True)
class Answer:
    """What the endpoint sends back; `pictures` are base64 JPEG files by name where they were asked for."""

    image: Picture
    model: str | None
    settings: Settings
    tokens: TokenCount
    gflops: Gflops | None
    ms: Milliseconds
    detections: list[Detection] | None = None
    categories: list[Category] | None = None
    pictures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Reading:
    """An answer with what its pictures are drawn from: the canvas, its tokens, and the detections where there are."""

    answer: Answer
    canvas: Canvas
    tokens: Tokens
    result: "Result | None" = None

    def tokens_picture(self) -> bytes:
        """The tokens over the canvas, a JPEG file."""
        # Drawn at the canvas's size, however large the frame: a screen shows no more.
        on_canvas = replace(self.tokens, source_height=self.canvas.height, source_width=self.canvas.width)
        return _jpeg(on_canvas.overlay(self.canvas.image))

    def detections_picture(self) -> bytes:
        """The detections over the canvas, a JPEG file."""
        from vgtok.show.overlay import draw_detections

        assert self.result is not None
        found = self.result
        width = self.answer.image.width
        return _jpeg(draw_detections(self.canvas.image, width, found.boxes, found.labels, found.class_names))

    def with_pictures(self) -> Answer:
        """The answer with its pictures inside."""
        pictures = {"tokens": self.tokens_picture()}
        if self.result is not None:
            pictures["detections"] = self.detections_picture()
        encoded = {name: base64.b64encode(picture).decode() for name, picture in pictures.items()}
        return replace(self.answer, pictures=encoded)


@dataclass(frozen=True)
class Service:
    """What every request is answered with: a detector under the name it was loaded by, or tokens only and why."""

    detector: "Detector | None" = None
    model: str | None = None
    without: str = "no model is loaded here, so there are tokens but no detections"
    score_threshold: float = 0.3

    @property
    def canvas(self) -> CanvasSize:
        """The frame images are fitted into."""
        return DEFAULT_CANVAS if self.detector is None else self.detector.canvas

    @property
    def budget(self) -> float:
        """The share of tokens a frame is read at if a request names none."""
        return DEFAULT_BUDGET if self.detector is None else self.detector.budget

    def tokenize(self, pixels: NDArray[np.uint8], name: str, settings: Settings) -> Reading:
        """Tokens of an (H, W, 3) uint8 frame, and what a detector will cost on them."""
        settings = self._settled(settings)
        tokenizer = settings.tokenizer(self.canvas)
        started = time.perf_counter()
        canvas = fit_canvas(pixels, tokenizer.canvas)
        tokens = tokenizer.partition(canvas)
        spent = 1000 * (time.perf_counter() - started)
        return Reading(self._answer(pixels, name, settings, tokens, Milliseconds(round(spent, 2))), canvas, tokens)

    def detect(
        self, pixels: NDArray[np.uint8], name: str, settings: Settings, score_threshold: float | None = None
    ) -> Reading:
        """Tokens and detections of an (H, W, 3) uint8 frame."""
        from vgtok.detect.result import default_category_ids

        if self.detector is None:
            raise RefusedError(503, f"model: {self.without}")
        settings = self._settled(settings)
        tokenizer = settings.tokenizer(self.canvas)
        threshold = self.score_threshold if score_threshold is None else score_threshold
        try:
            result = self.detector(pixels, tokenizer=tokenizer, score_threshold=threshold)
        # What one frame does to the model (memory, a kernel) says nothing about the next.
        except (RuntimeError, MemoryError) as error:
            reason = str(error).partition("\n")[0]
            raise RefusedError(500, f"{name}: the model could not read this frame ({reason})") from None
        times = (round(spent, 2) for spent in (result.timings.tokenizer, result.timings.encoder, result.timings.head))
        categories = zip(default_category_ids(result.class_names), result.class_names, strict=True)
        answer = replace(
            self._answer(pixels, name, settings, result.tokens, Milliseconds(*times)),
            detections=[Detection(**row) for row in result.to_coco(name)],
            categories=[Category(*pair) for pair in categories],
        )
        return Reading(answer, fit_canvas(pixels, self.canvas), result.tokens, result)

    def _settled(self, settings: Settings) -> Settings:
        return replace(settings, budget=self.budget) if settings.budget is None else settings

    def _answer(
        self, pixels: NDArray[np.uint8], name: str, settings: Settings, tokens: Tokens, ms: Milliseconds
    ) -> Answer:
        counts = {str(size): count for size, count in tokens.counts().items()}
        return Answer(
            image=Picture(name, pixels.shape[1], pixels.shape[0]),
            model=self.model,
            settings=settings,
            tokens=TokenCount(len(tokens), tokens.dense, tokens.retained, counts),
            gflops=None if self.detector is None else count_gflops(self.detector, tokens),
            ms=ms,
        )


def count_gflops(detector: "Detector", tokens: Tokens) -> Gflops:
    """Encoder, neck and the detector's own head over this partition, and over the dense grid of the same frame."""
    from vgtok.detect.model import detection_flops
    from vgtok.encode.flops import encoder_flops

    config = detector.model.config
    encoder = config.encoder_config()
    grid = encoder.grid_of(tokens.extent)
    after = sum(detection_flops(config, *grid, detector.head).values())
    used, dense = (sum(encoder_flops(execution, encoder, tokens)) + after for execution in ("packed", "dense"))
    return Gflops(round(used / 1e9, 3), round(dense / 1e9, 3))


def _jpeg(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    # Full colour resolution: outlines are one pixel wide.
    picture.save(buffer, "JPEG", quality=88, subsampling=0)
    return buffer.getvalue()
