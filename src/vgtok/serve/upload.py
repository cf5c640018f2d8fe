"""The page's upload: a form with one file in, the path of the file in the upload folder out.

It stands in for the framework's own, which takes any number of files a form and leaves behind what never became whole;
here a form lies in a nameless file until it is, and none outlives its connection.
"""

import logging
from pathlib import PurePosixPath

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from vgtok.serve.endpoint import DEFAULT_NAME
from vgtok.serve.intake import Intake
from vgtok.serve.limits import Limits, RefusedError
from vgtok.serve.uploads import Uploads

FORM_OVERHEAD = 10_000
"""Bytes a form adds to the one file in it."""

_NAME_BYTES = 150
_NOT_IN_NAMES = frozenset('<>:"/\\|?*#%')


def upload_router(limits: Limits, intake: Intake, uploads: Uploads) -> APIRouter:
    """The route the page sends files to."""
    router = APIRouter()
    # It would write a line to the log for every form a stranger breaks.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

    @router.post("/gradio_api/upload", include_in_schema=False)
    async def upload(request: Request) -> JSONResponse:
        """Keep the one file of a form."""
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise RefusedError(415, "upload: send a form with one file")
        with intake.body("upload", limits.max_bytes + FORM_OVERHEAD) as body:
            parser = MultiPartParser(request.headers, body.chunks(request.receive), max_files=1, max_fields=0)
            try:
                form = await parser.parse()
            except MultiPartException as error:
                raise RefusedError(400, f"upload: {error.message[:1].lower()}{error.message[1:]}") from None
            try:
                file = next((part for _, part in form.multi_items() if isinstance(part, UploadFile)), None)
                if file is None:
                    raise RefusedError(400, "upload: the form has no file")
                data = await file.read()
                limits.check_bytes(len(data), "upload")
                return JSONResponse([await to_thread.run_sync(uploads.keep, data, file_name(file.filename or ""))])
            finally:
                await form.close()

    @router.get("/gradio_api/upload_progress", include_in_schema=False)
    async def upload_progress() -> PlainTextResponse:
        """What the page listens to while it uploads; it shows the frame when that is whole, and no bar before."""
        return PlainTextResponse('data: {"msg": "done"}\n\n', media_type="text/event-stream")

    return router


def file_name(given: str) -> str:
    """What a visitor calls a file, without what no file or address can have in its name."""
    last = PurePosixPath(given.replace("\\", "/")).name
    cleaned = "".join(char for char in last if char.isprintable() and char not in _NOT_IN_NAMES).strip(" .")
    stem, dot, suffix = cleaned.rpartition(".")
    short = (stem or suffix).encode()[:_NAME_BYTES].decode(errors="ignore")
    return (f"{short}.{suffix[:10]}" if stem and dot else short) or DEFAULT_NAME
