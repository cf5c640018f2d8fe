"""Answer one request: pixels and settings in, tokens, detections, costs and pictures out."""

import base64
import io
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_CANVAS, DEFAULT_TOKENIZER
from vgtok.serve.limits import RefusedError
from vgtok.tokenize.canvas import Canvas, CanvasSize, fit_canvas
from vgtok.tokenize.tokenizer import Tokenizer, preset, usual_rank
from vgtok.tokenize.tokens import Tokens

if TYPE_CHECKING:
    from vgtok.detect.detector import Detector
    from vgtok.detect.result import Result


@dataclass(frozen=True)
class Settings:
    """Tokenizer settings: the controls of the page and the parameters of the endpoint.

    What is None is as the model reads images; the rank of another scorer is the usual one of that scorer.
    """

    budget: float | None = None
    rank: float | None = None
    scorer: str | None = None
    splitter: str | None = None

    def completed(self, budget: float, tokenizer: str) -> "Settings":
        """Return all settings, with the budget and the named tokenizer of a model for what was not given."""
        own = preset(tokenizer)
        scorer = own["scorer"] if self.scorer is None else self.scorer
        rank = own["rank"] if scorer == own["scorer"] else usual_rank(scorer)
        return Settings(
            budget if self.budget is None else self.budget,
            rank if self.rank is None else self.rank,
            scorer,
            own["splitter"] if self.splitter is None else self.splitter,
        )

    def tokenizer(self, canvas: CanvasSize) -> Tokenizer:
        """Return the tokenizer of settings that are complete; raise `InputError` that names an invalid one."""
        return Tokenizer(**vars(self), canvas=canvas)


@dataclass(frozen=True)
class Picture:
    """Name and size of the image in the request."""

    name: str
    width: int
    height: int


@dataclass(frozen=True)
class TokenCount:
    """Tokens kept, tokens of the dense 16-px grid, their ratio, and the count per token size in pixels."""

    kept: int
    dense: int
    share: float
    sizes: dict[str, int]


@dataclass(frozen=True)
class Gflops:
    """Cost from pixels to boxes with these tokens and with the dense grid, in 10^9 FLOPs."""

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
    """A row of a COCO results file; `bbox` is x, y, width, height in pixels of the image in the request."""

    image_id: str
    category_id: int
    bbox: list[float]
    score: float


@dataclass(frozen=True)
class Answer:
    """Response of the endpoint; `pictures` are base64 JPEG files by name, if requested."""

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
class DrawableAnswer:
    """An answer with what its pictures are drawn from: canvas, tokens, and detections if any."""

    answer: Answer
    canvas: Canvas
    tokens: Tokens
    result: "Result | None" = None

    def tokens_picture(self) -> bytes:
        """Return the tokens over the canvas, as JPEG."""
        # Drawn at the size of the canvas, however large the image: a screen shows no more.
        on_canvas = replace(self.tokens, source_height=self.canvas.height, source_width=self.canvas.width)
        return _jpeg(on_canvas.overlay(self.canvas.image))

    def detections_picture(self) -> bytes:
        """Return the detections over the canvas, as JPEG."""
        from vgtok.show.boxes import draw_detections

        assert self.result is not None
        found = self.result
        width = self.answer.image.width
        boxes = (found.boxes, found.labels, found.class_names)
        return _jpeg(draw_detections(self.canvas.image, width, *boxes, scores=found.scores))

    def with_pictures(self) -> Answer:
        """Return the answer with its pictures."""
        pictures = {"tokens": self.tokens_picture()}
        if self.result is not None:
            pictures["detections"] = self.detections_picture()
        encoded = {name: base64.b64encode(picture).decode() for name, picture in pictures.items()}
        return replace(self.answer, pictures=encoded)


@dataclass(frozen=True)
class Service:
    """Answers requests: a detector and the name of its model, or tokens only and the reason."""

    detector: "Detector | None" = None
    model: str | None = None
    without: str = "no model is loaded here, so there are tokens but no detections"
    score_threshold: float = 0.3

    @property
    def canvas(self) -> CanvasSize:
        """Size that images are fitted into."""
        return DEFAULT_CANVAS if self.detector is None else self.detector.canvas

    @property
    def budget(self) -> float:
        """Default budget of a request."""
        return DEFAULT_BUDGET if self.detector is None else self.detector.budget

    def tokenize(self, pixels: NDArray[np.uint8], name: str, settings: Settings) -> DrawableAnswer:
        """Return the tokens of an (H, W, 3) uint8 image, and the cost of the detector on them."""
        settings = self.completed(settings)
        tokenizer = settings.tokenizer(self.canvas)
        started = time.perf_counter()
        canvas = self._fit(pixels, tokenizer.canvas)
        tokens = tokenizer.partition(canvas)
        spent = 1000 * (time.perf_counter() - started)
        return DrawableAnswer(
            self._answer(pixels, name, settings, tokens, Milliseconds(round(spent, 2))), canvas, tokens
        )

    def detect(
        self, pixels: NDArray[np.uint8], name: str, settings: Settings, score_threshold: float | None = None
    ) -> DrawableAnswer:
        """Return the tokens and detections of an (H, W, 3) uint8 image."""
        return self.drawable(self.run(pixels, name, settings), pixels, name, settings, score_threshold)

    def run(self, pixels: NDArray[np.uint8], name: str, settings: Settings) -> "Result":
        """Return what the model finds in an (H, W, 3) uint8 image, of any score and without the pixels."""
        if self.detector is None:
            raise RefusedError(503, f"model: {self.without}")
        tokenizer = self.completed(settings).tokenizer(self.canvas)
        try:
            result = self.detector(pixels, tokenizer=tokenizer, score_threshold=0.0)
        # A failure on one image (memory, a kernel) does not affect the next.
        except (RuntimeError, MemoryError) as error:
            reason = str(error).partition("\n")[0]
            raise RefusedError(500, f"{name}: the model failed on this image ({reason})") from None
        return replace(result, image=np.empty((0, 0, 3), dtype=np.uint8))

    def drawable(
        self,
        result: "Result",
        pixels: NDArray[np.uint8],
        name: str,
        settings: Settings,
        score_threshold: float | None = None,
    ) -> DrawableAnswer:
        """Return what `run` found in the (H, W, 3) uint8 image, of at least the score [default: the service's]."""
        from vgtok.detect.result import default_category_ids

        kept = result.scores >= (self.score_threshold if score_threshold is None else score_threshold)
        result = replace(result, boxes=result.boxes[kept], scores=result.scores[kept], labels=result.labels[kept])
        times = (round(spent, 2) for spent in (result.timings.tokenizer, result.timings.encoder, result.timings.head))
        categories = zip(default_category_ids(result.class_names), result.class_names, strict=True)
        answer = replace(
            self._answer(pixels, name, self.completed(settings), result.tokens, Milliseconds(*times)),
            detections=[Detection(**row) for row in result.to_coco(name)],
            categories=[Category(*pair) for pair in categories],
        )
        return DrawableAnswer(answer, self._fit(pixels, self.canvas), result.tokens, result)

    def _fit(self, pixels: NDArray[np.uint8], size: CanvasSize) -> Canvas:
        return fit_canvas(pixels, size) if self.detector is None else self.detector.fit(pixels, size)

    def completed(self, settings: Settings) -> Settings:
        """Return all settings of a request, with those of the model for what it leaves open."""
        name = DEFAULT_TOKENIZER if self.detector is None else self.detector.tokenizer_name
        return settings.completed(self.budget, name)

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


def count_gflops(detector: "Detector", tokens: Tokens) -> Gflops | None:
    """Return the cost of encoder, neck and head on this partition, and on the dense grid of the same canvas.

    None for models of other libraries, whose cost is not known from their configuration.
    """
    from vgtok.detect.model import CoDetr, detection_flops
    from vgtok.encode.modes import encoder_flops

    if not isinstance(detector.model, CoDetr):
        return None

    config = detector.model.config
    encoder = config.encoder_config()
    grid = encoder.grid_of(tokens.extent)
    after = sum(detection_flops(config, *grid, detector.head).values())
    used, dense = (sum(encoder_flops(execution, encoder, tokens)) + after for execution in ("packed", "dense"))
    return Gflops(round(used / 1e9, 3), round(dense / 1e9, 3))


def _jpeg(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    # Full color resolution: outlines are one pixel wide.
    picture.save(buffer, "JPEG", quality=88, subsampling=0)
    return buffer.getvalue()
