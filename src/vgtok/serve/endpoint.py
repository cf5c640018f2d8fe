"""The HTTP endpoint: an image file as the body of a POST in, JSON out; errors are JSON with one sentence.

Answers follow the dataclasses of `vgtok.serve.service`; their schema is served at /api/openapi.json.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from vgtok.errors import InputError
from vgtok.serve.limits import Body, Intake, Limits, RefusedError, WorkQueue
from vgtok.serve.service import Answer, DrawableAnswer, Service, Settings

DEFAULT_NAME = "frame"
HEALTH = "/health"
"""Health check; the only route that needs no token."""


@dataclass(frozen=True)
class Failure:
    """Error message of one sentence."""

    error: str


@dataclass(frozen=True)
class Health:
    """Status of the server and the name of its model."""

    status: str
    model: str | None


Budget = Annotated[float | None, Query(description="Share of the dense grid to keep [default: the model's].")]
Rank = Annotated[
    float | None,
    Query(description="Share of the busiest nodes the gate stops, from 0 (no gate) to below 1 [default: the model's]."),
]
Scorer = Annotated[
    str | None, Query(description="Scorer, e.g. tophat, compact, fused, lambda_min, entropy [default: the model's].")
]
Splitter = Annotated[
    str | None, Query(description="quadtree (16, 32, 64 px) or single_pass (16, 32 px) [default: the model's].")
]


def asked_settings(
    budget: Budget = Settings.budget,
    rank: Rank = Settings.rank,
    scorer: Scorer = Settings.scorer,
    splitter: Splitter = Settings.splitter,
) -> Settings:
    """Return the tokenizer settings of a request."""
    return Settings(budget, rank, scorer, splitter)


Asked = Annotated[Settings, Depends(asked_settings)]
Name = Annotated[str, Query(max_length=200, description="Name of the image in the answer: its image_id.")]
Pictures = Annotated[bool, Query(description="Include the pictures in the answer, as base64 JPEG.")]
Threshold = Annotated[
    float | None, Query(ge=0, le=1, description="Minimum score of a detection [default: the server's].")
]

_FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"model": Failure, "description": "Invalid parameter or damaged image."},
    401: {"model": Failure, "description": "Missing or wrong token."},
    403: {"model": Failure, "description": "Host, Origin or content not allowed."},
    408: {"model": Failure, "description": "The body did not arrive in time."},
    413: {"model": Failure, "description": "Too many bytes or pixels."},
    415: {"model": Failure, "description": "The body is not an image file."},
    500: {"model": Failure, "description": "The model failed on this image."},
    503: {"model": Failure, "description": "Busy or stopping, or no model is loaded."},
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def api_router(
    service: Service, limits: Limits, intake: Intake, tokenizing: WorkQueue, detecting: WorkQueue
) -> APIRouter:
    """Return the routes under /api."""
    router = APIRouter(prefix="/api", responses=_FAILURES)

    async def respond(request: Request, queue: WorkQueue, work: Callable[[bytes], Answer]) -> Answer:
        """Receive the body, then work on it when the queue has room."""
        with intake.body("body", limits.max_bytes) as body:
            data = await _received(request, body)
            with queue.place():
                return await queue.run(lambda: work(data))

    @router.post("/tokenize", openapi_extra=_BODY)
    async def tokenize(
        request: Request,
        settings: Asked,
        name: Name = DEFAULT_NAME,
        pictures: Pictures = False,
    ) -> Answer:
        """Return the tokens of the image file in the body."""

        def work(data: bytes) -> Answer:
            return _finished(service.tokenize(limits.read(data, name), name, settings), pictures)

        return await respond(request, tokenizing, work)

    @router.post("/detect", openapi_extra=_BODY)
    async def detect(
        request: Request,
        settings: Asked,
        score_threshold: Threshold = None,
        name: Name = DEFAULT_NAME,
        pictures: Pictures = False,
    ) -> Answer:
        """Return the tokens and detections of the image file in the body."""

        def work(data: bytes) -> Answer:
            return _finished(service.detect(limits.read(data, name), name, settings, score_threshold), pictures)

        return await respond(request, detecting, work)

    return router


def health_router(service: Service) -> APIRouter:
    """Return the health check."""
    router = APIRouter()

    @router.get(HEALTH)
    async def health() -> Health:
        """Return the status of the server."""
        return Health("ok", service.model)

    return router


async def _received(request: Request, body: Body) -> bytes:
    """Return the image file in a request."""
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise RefusedError(415, "body: send the image file itself as the body, not a form")
    return await body.whole(request.receive)


def _finished(drawn: DrawableAnswer, pictures: bool) -> Answer:
    return drawn.with_pictures() if pictures else drawn.answer


def answer_errors(app: FastAPI) -> None:
    """Answer every error of a request with a status and one sentence."""

    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RefusedError)
        return failure(error.status, str(error))

    async def unusable(_: Request, error: Exception) -> JSONResponse:
        return failure(400, str(error))

    async def mistyped(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        return failure(400, f"{first['loc'][-1]}: {first['msg'][0].lower()}{first['msg'][1:]}")

    async def broken(_: Request, __: Exception) -> JSONResponse:
        return failure(500, "server: the request failed; see the server log")

    app.add_exception_handler(Exception, broken)
    app.add_exception_handler(RefusedError, refused)
    app.add_exception_handler(InputError, unusable)
    app.add_exception_handler(RequestValidationError, mistyped)


def failure(status: int, sentence: str) -> JSONResponse:
    """Return an error response."""
    headers = {503: {"Retry-After": "2"}, 401: {"WWW-Authenticate": "Bearer"}}.get(status)
    return JSONResponse({"error": sentence}, status, headers)
