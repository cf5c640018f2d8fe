"""The endpoint over HTTP, against the Python API."""

import asyncio
import base64
import http.client
import io
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest
from fastapi import FastAPI
from PIL import Image

from vgtok import Tokenizer
from vgtok.detect.detector import Detector
from vgtok.detect.saving import load_detector
from vgtok.serve.endpoint import answer_errors, api_router
from vgtok.serve.limits import SECONDS_OF_SILENCE, Intake, Limits, WorkQueue
from vgtok.serve.server import DEFAULT_PLACES
from vgtok.serve.service import Service

from .conftest import Running, ask, connected, picture


def post(
    server: Running, route: str, body: Any, headers: dict[str, str] | None = None, **query: Any
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=120)
    try:
        kind = headers or {"Content-Type": "image/png"}
        connection.request("POST", f"{route if route[0] == '/' else '/api/' + route}?{urlencode(query)}", body, kind)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def png(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def detector(server: Running) -> Detector:
    return load_detector(server.model)


def check_rows(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(rows) == len(expected) > 0
    for row, wanted in zip(rows, expected, strict=True):
        assert (row["image_id"], row["category_id"]) == (wanted["image_id"], wanted["category_id"])
        assert row["bbox"] == pytest.approx(wanted["bbox"], abs=0.01)
        assert row["score"] == pytest.approx(wanted["score"], abs=1e-4)


def test_the_answer_is_that_of_the_python_api(server: Running, detector: Detector) -> None:
    pixels = picture(1, 300, 200)
    settings = {"budget": 0.6, "rank": 0.1, "scorer": "entropy", "splitter": "quadtree"}
    status, answer = post(server, "detect", png(pixels), name="a.png", pictures="true", **settings)
    assert status == 200
    expected = detector(pixels, tokenizer=Tokenizer(**settings, canvas=detector.canvas), score_threshold=0.0)  # type: ignore[arg-type]
    check_rows(answer["detections"], expected.to_coco("a.png"))
    assert answer["image"] == {"name": "a.png", "width": 300, "height": 200}
    assert (answer["model"], answer["settings"]) == ("small", settings)
    assert answer["tokens"]["kept"] == len(expected.tokens)
    assert answer["tokens"]["dense"] == expected.tokens.dense
    assert sum(answer["tokens"]["sizes"].values()) == len(expected.tokens)
    assert answer["categories"] == [{"id": 1, "name": "car"}, {"id": 2, "name": "van"}, {"id": 3, "name": "bus"}]
    assert 0 < answer["gflops"]["used"] < answer["gflops"]["dense"]
    assert all(answer["ms"][stage] > 0 for stage in ("tokenizer", "encoder", "head"))
    for name in ("tokens", "detections"):
        with Image.open(io.BytesIO(base64.b64decode(answer["pictures"][name]))) as drawn:
            assert drawn.size == (192, 128)
    best = answer["detections"][0]["score"]
    _, answer = post(server, "detect", png(pixels), **settings, score_threshold=best - 1e-5)
    assert 1 <= len(answer["detections"]) < len(expected)
    status, answer = post(server, "tokenize", png(pixels), **settings)
    assert (status, answer["tokens"]["kept"], answer["detections"]) == (200, len(expected.tokens), None)


def test_twenty_clients_at_once_get_their_own_answer(server: Running, detector: Detector) -> None:
    frames = {f"{seed}.png": picture(seed) for seed in range(20)}
    expected = {
        name: detector(pixels, budget=0.4, score_threshold=0.0).to_coco(name) for name, pixels in frames.items()
    }
    assert len({json.dumps([row["bbox"] for row in rows]) for rows in expected.values()}) == 20

    def ask(name: str) -> tuple[int, Any]:
        return post(server, "detect", png(frames[name]), name=name)

    with ThreadPoolExecutor(28) as clients:
        # Bad company disturbs nobody.
        bad = [clients.submit(post, server, "detect", png(picture(0))[:2000], name=f"bad {i}") for i in range(8)]
        answers = dict(zip(frames, clients.map(ask, frames), strict=True))
    for name, (status, answer) in answers.items():
        assert status == 200, answer
        check_rows(answer["detections"], expected[name])
    assert {refused.result()[0] for refused in bad} == {400}


@pytest.mark.parametrize("route", ["tokenize", "detect"])
def test_what_cannot_be_answered_is_a_status_and_a_sentence(server: Running, route: str) -> None:
    good = png(picture(0))
    for status, start, body, query in (
        (415, "notes.txt: not an image in a format", b"plain text", {"name": "notes.txt"}),
        (403, "frame: content of EPS; only one of JPEG, PNG", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", {}),
        (400, "frame: the image is damaged or cut short", good[:2000], {}),
        (400, "frame: the file is empty", b"", {}),
        (413, "frame: 3000 x 3000 pixels are more than the 4 megapixels", png(np.zeros((3000, 3000, 3), np.uint8)), {}),
        (413, "body: larger than the 2 MB allowed here", (b"x" * 10**5 for _ in range(30)), {}),
        (400, "budget: 3.0 is outside", good, {"budget": 3}),
        (400, "budget: nan is outside", good, {"budget": "nan"}),
        (400, "budget: input should be a valid number", good, {"budget": "much"}),
        (400, "rank: 1.0 is not", good, {"rank": 1}),
        (400, "scorer: 'taste' is not one of", good, {"scorer": "taste"}),
        (400, "splitter: 'axe' is not one of", good, {"splitter": "axe"}),
    ):
        code, answer = post(server, route, body, **query)
        assert (code, list(answer)) == (status, ["error"]), answer
        assert answer["error"].startswith(start), answer
        assert "\n" not in answer["error"]
    assert post(server, route, good, {"Content-Type": "multipart/form-data; boundary=x"})[0] == 415
    assert post(server, route, good)[0] == 200


def test_a_claim_of_a_gigabyte_is_refused_before_it_is_sent(server: Running) -> None:
    address = urlsplit(server.address)
    for route in ("/api/detect", "/gradio_api/upload"):
        with socket.create_connection((address.hostname, address.port), timeout=120) as connection:
            connection.sendall(f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**9}\r\n\r\n".encode())
            # Until it closes: head and body may come in two parts.
            answer = b"".join(iter(lambda: connection.recv(2000), b"")).decode()
        assert answer.startswith("HTTP/1.1 413 ")
    assert answer.endswith('{"error":"upload: larger than the 2 MB allowed here"}')


def test_bodies_that_never_end_keep_nobody_out(server: Running) -> None:
    good, heads = png(picture(0)), b"HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nbegun"
    with ExitStack() as waiting:
        held = [waiting.enter_context(connected(server.address)) for _ in range(DEFAULT_PLACES + 8)]
        for number, connection in enumerate(held):
            connection.sendall((b"POST /api/detect " if number % 2 else b"POST /api/tokenize ") + heads)
        started = time.monotonic()
        for route in ("tokenize", "detect"):
            assert post(server, route, good)[0] == 200
        # Each is told so when it has been silent for too long.
        for connection in held:
            assert connection.recv(2000).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - started < 3 * SECONDS_OF_SILENCE


def test_a_full_queue_turns_away_at_once() -> None:
    async def main() -> None:
        queue = WorkQueue(places=1)
        application = FastAPI()
        answer_errors(application)
        application.include_router(api_router(Service(), Limits(), Intake(Limits()), queue, queue))
        messages: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": png(picture(0))}

        async def send(message: Any) -> None:
            messages.append(message)

        scope = {"type": "http", "method": "POST", "path": "/api/tokenize", "query_string": b"", "headers": []}
        with queue.place():
            await application(scope, receive, send)
        assert (messages[0]["status"], b"busy: 1 requests" in messages[1]["body"]) == (503, True)
        await application(scope, receive, send)
        assert messages[2]["status"] == 200

    asyncio.run(main())


def test_the_schema_is_served_and_nothing_else_is(server: Running, tmp_path: Path) -> None:
    document = json.loads(ask(server.address, "GET", "/api/openapi.json")[2])
    assert set(document["paths"]) == {"/api/tokenize", "/api/detect", "/health"}
    operation = document["paths"]["/api/detect"]["post"]
    # Each once; whether those of a dependency come first or last differs between releases of the framework.
    names = sorted(parameter["name"] for parameter in operation["parameters"])
    assert names == ["budget", "name", "pictures", "rank", "score_threshold", "scorer", "splitter"]
    assert {"200", "400", "403", "413", "415", "503"} <= set(operation["responses"])
    (tmp_path / "secret.txt").write_text("secret")
    for path in (f"/gradio_api/file={tmp_path}/secret.txt", f"/gradio_api/file={server.model}/config.json"):
        assert ask(server.address, "GET", path)[0] == 403
    assert server.address.startswith("http://127.0.0.1:")
