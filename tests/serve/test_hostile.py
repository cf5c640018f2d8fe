"""Strangers at the port: whatever they send, no file outside the upload folder is read, and nobody else waits."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.tokenize.hostile_files import POSTSCRIPT, two_formats
from vgtok.errors import InputError
from vgtok.serve.access import MOST_CONNECTIONS, SECONDS_FOR_A_HEAD, access_at
from vgtok.serve.controls import YOUR_IMAGE, ImageSource
from vgtok.serve.limits import Limits, RefusedError, WorkQueue
from vgtok.serve.listeners import Listeners
from vgtok.serve.service import Service
from vgtok.serve.uploads import Uploads

from .conftest import SECRET, Alone, ask, connected, picture, served
from .test_endpoint import png

JSON = {"Content-Type": "application/json"}
EVENT = "/gradio_api/run/predict"


def event(file: Any, fn_index: int = 0, session: str = "s") -> str:
    data = [file, YOUR_IMAGE, 40, 0.3, False, 0.2, "tophat", "quadtree"]
    return json.dumps({"data": data, "fn_index": fn_index, "session_hash": session})


def file_data(path: Any, **more: Any) -> dict[str, Any]:
    return {"path": path, "meta": {"_type": "gradio.FileData"}, **more}


def test_the_script_that_read_any_file_is_refused_at_every_step(alone: Alone) -> None:
    for path in ("/etc/passwd", str(alone.secret), str(alone.secret.with_suffix(".png")), "/proc/self/environ"):
        status, _, body = ask(alone.address, "POST", EVENT, event(file_data(path)), JSON)
        assert (status, b"no other file is read" in body) == (403, True)
    for path in ("/gradio_api/deep_link?session_hash=s", "/config?deep_link=x", "/?deep_link=x", "/config"):
        assert ask(alone.address, "GET", path)[0] == 404
    for path in (alone.secret, f"{alone.folder}/../../secret.txt", "http://127.0.0.1:1/x", alone.folder):
        assert ask(alone.address, "GET", f"/gradio_api/file={path}")[0] == 403
        assert ask(alone.address, "GET", f"/gradio_api/file={quote(str(path), safe='')}")[0] == 403
    assert SECRET not in alone.uploaded()


@pytest.mark.parametrize("fn_index", range(10))
def test_no_event_names_a_file_elsewhere(alone: Alone, fn_index: int) -> None:
    (alone.folder / "link.txt").unlink(missing_ok=True)
    (alone.folder / "link.txt").symlink_to(alone.secret)
    (alone.folder / "mine.txt").write_bytes(b"mine")
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0.2)
        foreign = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/frame.png"
        mine = str(alone.folder / "mine.txt")
        for file in (
            file_data(str(alone.secret)),
            file_data(f"{alone.folder}/../../secret.txt"),
            file_data(str(alone.folder / "link.txt")),
            file_data(os.path.relpath(alone.secret)),
            file_data(f"file://{alone.secret}"),
            file_data(f"{alone.secret}\0.png"),
            file_data([str(alone.secret)]),
            file_data(foreign),
            file_data(mine, url=foreign),
            file_data(mine, url=f"{foreign}/gradio_api/file={mine}"),
            file_data(mine, url=f"{alone.address}/gradio_api/file={alone.secret}"),
            [file_data(mine), file_data(str(alone.secret))],
            {"deep": {"er": [file_data(str(alone.secret))]}},
            {"path": str(alone.secret)},
        ):
            status, _, body = ask(alone.address, "POST", EVENT, event(file, fn_index), JSON)
            assert status == 403, (file, body)
        # A key that comes twice, and a body that is said to be a form.
        twice = event(file_data(mine)).replace('"path":', f'"path": "{alone.secret}", "path":')
        ask(alone.address, "POST", EVENT, twice, JSON)
        form = {"Content-Type": "multipart/form-data; boundary=x"}
        sent = event(file_data(str(alone.secret)), fn_index)
        assert ask(alone.address, "POST", EVENT, sent, form)[0] == 403
        with pytest.raises(TimeoutError):
            elsewhere.accept()
    (alone.folder / "link.txt").unlink()
    assert SECRET not in alone.uploaded()


def test_events_of_another_kind_are_one_sentence_and_no_traceback(alone: Alone) -> None:
    # Whatever the framework cannot take would be a traceback in the log, which `served` finds empty.
    good = json.loads(event(None))
    numbers = range(-1, 12)
    events = [{**good, "fn_index": number, "data": [*good["data"], 1]} for number in numbers]
    events += [{**good, "fn_index": number, "data": ["x"] * 8} for number in numbers]
    events += [{**good, "fn_index": kind} for kind in (None, "0", 1.5, [], True)]
    for sent in (*events, {}, [], "x", None, {"data": 1, "fn_index": 1}):
        status, _, body = ask(alone.address, "POST", EVENT, json.dumps(sent), JSON)
        assert (status, list(json.loads(body))) == (400, ["error"]), sent
    odd = {"batched": True, "event_data": {"a": []}, "event_id": 7, "trigger_id": "x", "session_hash": {"a": 1}}
    statuses = [
        ask(alone.address, "POST", EVENT, json.dumps({**good, **odd, "fn_index": number}), JSON)[0]
        for number in numbers
    ]
    assert statuses.count(200) == 1, "without a model, only the tokens are answered"
    assert set(statuses) == {200, 400}


@pytest.mark.parametrize(
    "route",
    [
        "POST /gradio_api/run/predict/", "POST /gradio_api/run/tokens", "POST /gradio_api/api/predict",
        "POST /gradio_api/queue/join", "GET /gradio_api/queue/data?session_hash=s", "POST /gradio_api/call/predict",
        "POST /gradio_api/call/v2/predict", "POST /gradio_api/process_recording", "POST /gradio_api/vibe-edit/",
        "POST /gradio_api/reset", "POST /gradio_api/cancel", "POST /gradio_api/stream/x", "POST /login",
        "GET /gradio_api/deep_link", "GET /gradio_api/info", "GET /gradio_api/proxy=http://127.0.0.1/",
        "GET /gradio_api/file/etc/passwd", "GET /gradio_api/vibe-code/", "GET /gradio_api/dev/reload",
        "GET /gradio_api/heartbeat/s", "GET /gradio_api/custom_component/1/client/component/../../x",
        "GET /svelte/x", "GET /monitoring", "GET /gradio_api/queue/status", "GET /pwa_icon", "GET /docs",
        "PUT /api/tokenize", "DELETE /", "OPTIONS /api/tokenize", "GET //etc/passwd", "GET /gradio_api/openapi.json",
    ],
)  # fmt: skip
def test_only_what_the_page_needs_is_there(alone: Alone, route: str) -> None:
    method, path = route.split(" ")
    sent = event(file_data(str(alone.secret))) if method == "POST" else None
    assert ask(alone.address, method, path, sent, JSON)[0] == 404


def test_the_frame_of_an_event_is_checked_where_it_is_opened(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads", 10**6)
    (tmp_path / "secret.png").write_bytes(png(picture(0)))
    listeners = Listeners(Service(), Limits(), uploads, WorkQueue(1), WorkQueue(1))
    own = uploads.keep(png(picture(0)), "own.png")
    assert listeners.pixels(ImageSource(own, None)).shape == (128, 192, 3)
    for path in (tmp_path / "secret.png", f"{uploads.folder}/../secret.png", "\0", uploads.folder):
        with pytest.raises(RefusedError, match="no other file is read") as refused:
            listeners.pixels(ImageSource(str(path), None))
        assert refused.value.status == 403


def test_the_framework_checks_the_files_of_events_too(tmp_path: Path) -> None:
    # It skips its check for a page it takes to be under construction. In a process of its own: it leaves loops behind.
    program = """
from pathlib import Path
from gradio.context import LocalContext
from gradio.exceptions import InvalidPathError
from gradio.processing_utils import _check_allowed
from vgtok.serve.service import Service
from vgtok.serve.limits import Limits
from vgtok.serve.page import build_page
from vgtok.serve.limits import WorkQueue
from vgtok.serve.uploads import Uploads
LocalContext.blocks.set(build_page(Service(), Limits(), Uploads(Path("uploads"), 9), WorkQueue(1), WorkQueue(1)))
try:
    _check_allowed("/etc/passwd", check_in_upload_folder=True)
except InvalidPathError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr


FOREIGN = ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost@evil.example", "10.0.0.7", ""]


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused(alone: Alone, host: str) -> None:
    named = {"Host": host.format(port=urlsplit(alone.address).port)}
    for method, path in (("GET", "/"), ("GET", "/health"), ("POST", "/api/tokenize"), ("POST", "/gradio_api/upload")):
        status, headers, _ = ask(alone.address, method, path, png(picture(0)), named)
        assert status == 403
        assert not any(name.startswith("access-control") for name in headers)
    assert ask(alone.address, "GET", "/health", headers={"X-Forwarded-Host": "evil.example"})[0] == 403


def test_a_foreign_origin_is_refused(alone: Alone) -> None:
    port = urlsplit(alone.address).port
    assert port is not None
    for origin in (
        "http://evil.example",
        "null",
        f"http://127.0.0.1:{port + 1}",
        "http://localhost:3000",
        "http://[::1",
    ):
        for method, path in (("GET", "/"), ("POST", "/api/tokenize"), ("OPTIONS", "/api/tokenize")):
            status, headers, _ = ask(alone.address, method, path, png(picture(0)), {"Origin": origin})
            assert status == 403, origin
            assert not any(name.startswith("access-control") for name in headers)
    own = {"Origin": f"http://localhost:{port}", "Host": f"localhost:{port}"}
    assert ask(alone.address, "POST", "/api/tokenize", png(picture(0)), own)[0] == 200


def test_a_file_of_two_formats_and_postscript_are_forbidden(alone: Alone) -> None:
    for data, name, content in (
        (two_formats(2000), "x.tif", "IM and TIFF"),
        (two_formats(2500), "x.jpg", "IM and TIFF"),
        (POSTSCRIPT, "e.jpg", "EPS"),
    ):
        status, _, body = ask(alone.address, "POST", f"/api/tokenize?name={name}", data)
        assert (status, json.loads(body)["error"].partition(";")[0]) == (403, f"{name}: content of {content}")


def test_a_server_says_that_it_is_well(alone: Alone) -> None:
    status, _, body = ask(alone.address, "GET", "/health")
    assert (status, json.loads(body)) == (200, {"status": "ok", "model": None})


def test_a_request_of_two_lengths_is_refused_and_what_follows_is_not_served(alone: Alone) -> None:
    lengths = b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    first = b"POST /api/tokenize HTTP/1.1\r\nHost: localhost\r\n" + lengths
    with connected(alone.address) as connection:
        connection.sendall(first + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4000), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_half_sent_heads_are_let_go_and_block_nobody(alone: Alone) -> None:
    with ExitStack() as opened:
        started = time.monotonic()
        slow = [opened.enter_context(connected(alone.address)) for _ in range(MOST_CONNECTIONS + 44)]
        for number, connection in enumerate(slow):
            try:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " if number % 3 else b"")
            except OSError:  # made room for a later one already
                continue
        assert ask(alone.address, "GET", "/health")[0] == 200
        for connection in slow:
            try:
                assert connection.recv(100) == b""
            except ConnectionResetError:
                continue
        assert time.monotonic() - started < 4 * SECONDS_FOR_A_HEAD


def test_unfinished_events_hold_no_memory(alone: Alone) -> None:
    head = b"POST /gradio_api/run/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connected(alone.address) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b'"' * 0x10000 + b"\r\n")
        connection.sendall(b"10000\r\n" + b"a" * 0x10000 + b"\r\n")
        assert connection.recv(2000).startswith(b"HTTP/1.1 413 ")
    with connected(alone.address) as connection:
        connection.sendall(head + b"Content-Length: 200000\r\n\r\n")
        assert connection.recv(2000).startswith(b"HTTP/1.1 413 ")
    with connected(alone.address) as connection:
        connection.sendall(head + b"Content-Length: 2000\r\n\r\n{")
        assert connection.recv(2000).startswith(b"HTTP/1.1 408 ")


def form(*files: bytes) -> bytes:
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="f.png"\r\n\r\n'
    return b"".join(head + file + b"\r\n" for file in files) + b"--x--\r\n"


FORM = {"Content-Type": "multipart/form-data; boundary=x"}


def test_a_form_brings_one_file_and_leaves_nothing_when_it_fails(alone: Alone) -> None:
    status, _, body = ask(alone.address, "POST", "/gradio_api/upload", form(b"good"), FORM)
    (path,) = json.loads(body)
    assert (status, Path(path).read_bytes(), Path(path).name) == (200, b"good", "f.png")
    assert Path(path).is_relative_to(alone.folder)
    before = len(alone.uploaded())
    megabyte = b"m" * 2**20
    for sent, code in (
        (form(b"one", b"two"), 400),
        (iter([form(megabyte, megabyte)]), 413),
        (iter([form(megabyte + b"m" * 20_000)]), 413),
        (form(), 400),
        (b"no form", 400),
    ):
        status, _, body = ask(alone.address, "POST", "/gradio_api/upload", sent, FORM)
        assert (status, list(json.loads(body))) == (code, ["error"])
    assert ask(alone.address, "POST", "/gradio_api/upload", b"x", JSON)[0] == 415
    for _ in range(5):
        with connected(alone.address) as connection:
            head = b"POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n"
            connection.sendall(
                head + b"Content-Type: multipart/form-data; boundary=x\r\n\r\n" + form(megabyte)[:500_000]
            )
    assert ask(alone.address, "GET", "/health")[0] == 200
    assert len(alone.uploaded()) == before


def test_a_token_opens_the_server_and_nothing_else_does(tmp_path: Path) -> None:
    token, good = "a token of 20 letters", png(picture(0))
    names = ("--allowed-host", "friend.example", "--allowed-host", "tokens.example:8443")
    with served("--token", token, *names, errors=tmp_path / "errors.txt", shipped=False) as announced:
        address = announced["address"]
        assert ask(address, "GET", "/health")[0] == 200
        for headers in (
            {}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {token}"}, {"Authorization": "Bearer"},
            {"Cookie": f"vgtok_serve={token}"}, {"Cookie": "vgtok_serve="}, {"Cookie": "\xff=;;"},
        ):  # fmt: skip
            for method, path in (("GET", "/"), ("POST", "/api/tokenize"), ("POST", EVENT)):
                status, answered, _ = ask(address, method, path, good, headers)
                assert (status, answered["www-authenticate"]) == (401, "Bearer")
        assert ask(address, "GET", "/?token=wrong")[0] == 401
        assert ask(address, "POST", f"/api/tokenize?token={quote(token)}", good)[0] == 401
        assert ask(address, "POST", "/api/tokenize", good, {"Authorization": f"Bearer {token}"})[0] == 200
        status, headers, _ = ask(address, "GET", f"/?token={quote(token)}")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert token not in cookie
        assert {"httponly", "samesite=strict"} <= set(cookie.lower().split("; "))
        # The settings of a link stay; the token goes.
        status, headers, _ = ask(address, "GET", f"/?budget=0.2&token={quote(token)}&sample=//evil.example")
        assert (status, headers["location"]) == (303, "/?budget=0.2&sample=%2F%2Fevil.example")
        assert ask(address, "GET", "/", headers={"Cookie": cookie.partition(";")[0]})[0] == 200
        friend = {"Authorization": f"Bearer {token}", "Host": "Friend.example.", "Origin": "https://friend.example"}
        assert ask(address, "POST", "/api/tokenize", good, friend)[0] == 200
        assert ask(address, "POST", "/api/tokenize", good, friend | {"Host": "tokens.example"})[0] == 200


def test_listening_to_other_machines_without_a_token_is_said(tmp_path: Path) -> None:
    warning = "warning: other machines can reach http://0.0.0.0:"
    with served("--host", "0.0.0.0", errors=tmp_path / "errors.txt", shipped=False, warning=warning) as announced:
        address = re.sub(r"0\.0\.0\.0", "127.0.0.1", announced["address"])
        # Any address may be this machine's; a name must be one that was allowed.
        for host, code in (("192.168.7.7:80", 200), ("[fe80::1]", 200), ("machine.example", 403)):
            assert ask(address, "GET", "/health", headers={"Host": host})[0] == code


def test_tokens_and_names_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="token: give 16"):
        access_at("127.0.0.1", token="short")
    for name in ("http://x.example", "", "a b@c", "x.example/path"):
        with pytest.raises(InputError, match="allowed-host"):
            access_at("127.0.0.1", [name])
