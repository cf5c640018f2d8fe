"""The HTTP endpoint: an image file as the body of a POST in, JSON out; errors are JSON with one sentence.

The schema of every answer is that of the dataclasses in `vgtok.serve.service`, served at /api/openapi.json.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from vgtok.errors import InputError
from vgtok.serve.limits import Body, Intake, Limits, RefusedError, Turns
from vgtok.serve.service import Answer, Reading, Service, Settings

DEFAULT_NAME = "frame"
HEALTH = "/health"
"""Where a service manager asks; the one route that needs no token."""


@dataclass(frozen=True)
class Failure:
    """Why there is no answer, in one sentence."""

    error: str


@dataclass(frozen=True)
class Health:
    """That the server answers, and the model it does so with."""

    status: str
    model: str | None


Budget = Annotated[
    float | None, Query(description="Share of the dense grid to keep, exactly; the model's own default if left out.")
]
Rank = Annotated[float, Query(description="Share of busy nodes the gate stops, from 0 (no gate) to below 1.")]
Scorer = Annotated[str, Query(description="Score, e.g. tophat, fused, compact, lambda_min, entropy.")]
Splitter = Annotated[str, Query(description="quadtree (16, 32, 64 px) or single_pass (16, 32 px).")]


def asked_settings(
    budget: Budget = Settings.budget,
    rank: Rank = Settings.rank,
    scorer: Scorer = Settings.scorer,
    splitter: Splitter = Settings.splitter,
) -> Settings:
    """The parameters of every route that say how a frame is read."""
    return Settings(budget, rank, scorer, splitter)


Asked = Annotated[Settings, Depends(asked_settings)]
Name = Annotated[str, Query(max_length=200, description="What the frame is called in the answer: its image_id.")]
Pictures = Annotated[bool, Query(description="Put the pictures into the answer, base64 JPEG.")]
Threshold = Annotated[
    float | None, Query(ge=0, le=1, description="Detections below this score are left out; the server's own if absent.")
]

_FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"model": Failure, "description": "A parameter or a damaged image."},
    401: {"model": Failure, "description": "The server asks for a token."},
    403: {"model": Failure, "description": "A foreign Host or Origin."},
    408: {"model": Failure, "description": "The body did not arrive in time."},
    413: {"model": Failure, "description": "More bytes or pixels than allowed."},
    415: {"model": Failure, "description": "The body is no image file."},
    500: {"model": Failure, "description": "The model failed on this frame."},
    503: {"model": Failure, "description": "Busy, or no model is loaded."},
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def api_router(service: Service, limits: Limits, intake: Intake, tokenizing: Turns, detecting: Turns) -> APIRouter:
    """The routes under /api."""
    router = APIRouter(prefix="/api", responses=_FAILURES)

    @router.post("/tokenize", openapi_extra=_BODY)
    async def tokenize(
        request: Request,
        settings: Asked,
        name: Name = DEFAULT_NAME,
        pictures: Pictures = False,
    ) -> Answer:
        """Tokens of the image file in the body."""

        def work() -> Answer:
            return _finished(service.tokenize(limits.read(data, name), name, settings), pictures)

        with intake.body("body", limits.max_bytes) as body:
            data = await _received(request, body)
            with tokenizing.place():
                return await tokenizing.run(work)

    @router.post("/detect", openapi_extra=_BODY)
    async def detect(
        request: Request,
        settings: Asked,
        score_threshold: Threshold = None,
        name: Name = DEFAULT_NAME,
        pictures: Pictures = False,
    ) -> Answer:
        """Tokens and detections of the image file in the body."""

        def work() -> Answer:
            return _finished(service.detect(limits.read(data, name), name, settings, score_threshold), pictures)

        with intake.body("body", limits.max_bytes) as body:
            data = await _received(request, body)
            with detecting.place():
                return await detecting.run(work)

    return router


def health_router(service: Service) -> APIRouter:
    """The route that says the server is up."""
    router = APIRouter()

    @router.get(HEALTH)
    async def health() -> Health:
        """Whether the server answers."""
        return Health("ok", service.model)

    return router


async def _received(request: Request, body: Body) -> bytes:
    """The image file a request brings."""
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise RefusedError(415, "body: send the image file itself as the body, not a form")
    return await body.whole(request.receive)


def _finished(reading: Reading, pictures: bool) -> Answer:
    return reading.with_pictures() if pictures else reading.answer


def answer_errors(app: FastAPI) -> None:
    """Turn everything a request can be refused for into a status and one sentence."""

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
        return failure(500, "server: it failed on this request; its own log says why")

    app.add_exception_handler(Exception, broken)
    app.add_exception_handler(RefusedError, refused)
    app.add_exception_handler(InputError, unusable)
    app.add_exception_handler(RequestValidationError, mistyped)


def failure(status: int, sentence: str) -> JSONResponse:
    """An error as every client gets it."""
    headers = {503: {"Retry-After": "2"}, 401: {"WWW-Authenticate": "Bearer"}}.get(status)
    return JSONResponse({"error": sentence}, status, headers)
