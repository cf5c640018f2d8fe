"""The page in a real browser, as a visitor uses it."""

import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from vgtok import Tokenizer
from vgtok.detect.saving import load_detector

from .browser import Tab, browser, find_chromium
from .conftest import Running, served

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs chromium on the path")

DENSE = 96
"""Cells of the small model's 192 x 128 canvas."""


@pytest.fixture(scope="module")
def tab(server: Running) -> Iterator[Tab]:
    program = find_chromium()
    assert program is not None
    with browser(program) as tab:
        tab.open(server.address)
        tab.wait(f"({KEPT}) && document.querySelector('#found .tiles')")
        yield tab


KEPT = "+document.querySelector('#tokens dd')?.firstChild.textContent.replaceAll(',', '')"


def upload(tab: Tab, path: Path) -> None:
    tab.choose_file("#upload input[type=file]", path)


def shown(tab: Tab, path: Path) -> None:
    upload(tab, path)
    tab.wait(f"document.querySelector('#tokens-caption').innerText.includes({path.name!r})")


def settled(tab: Tab, kept: int) -> None:
    """Wait until tokens and detections are those of `kept` tokens."""
    tab.wait(f"{KEPT} == {kept}")
    tab.wait(f"document.querySelector('#found-caption').innerText.includes('from {kept} tokens')")


def test_a_visitor_drags_the_budget_and_takes_the_json_home(tab: Tab, server: Running, frame: Path) -> None:
    assert 0 < int(tab.evaluate(KEPT)) < DENSE, "a rendered frame is there without asking"
    shown(tab, frame)
    for per_cent in (20, 75, 50):
        tab.move_slider("#budget input[type=range]", per_cent)
        tab.wait(f"Math.abs({KEPT} - {DENSE * per_cent / 100}) <= 2")
    quadtree = Tokenizer(0.5, canvas=(192, 128))(frame)
    assert quadtree.counts()[64] > 0
    settled(tab, len(quadtree))
    assert f"64 px: {quadtree.counts()[64]}" in tab.text("#tokens .legend")
    tab.click("#splitter input[value=single_pass]")
    tab.wait("document.querySelector('#tokens .legend').innerText.includes('64 px: 0')")
    # Another count than before, so that detections of the frame before are not taken for these.
    tab.move_slider("#budget input[type=range]", 60)
    tokenizer = Tokenizer(0.6, splitter="single_pass", canvas=(192, 128))
    expected = load_detector(server.model)(frame, tokenizer=tokenizer)
    assert len(expected.tokens) != len(quadtree)
    settled(tab, len(expected.tokens))
    # Two scales have no gate.
    tab.wait("document.querySelector('#rank input[type=range]').disabled")
    tab.wait("!document.querySelector('#coco-file').disabled")
    tab.click("#coco-file")
    rows = json.loads(tab.downloaded("frame.json"))
    assert len(rows) == len(expected) > 0
    for row, wanted in zip(rows, expected.to_coco("frame.png"), strict=True):
        assert (row["image_id"], row["category_id"]) == ("frame.png", wanted["category_id"])
        assert row["bbox"] == pytest.approx(wanted["bbox"], abs=0.01)
        assert row["score"] == pytest.approx(wanted["score"], abs=1e-4)
    tab.click("#found-file")
    assert tab.downloaded("frame.detections.jpg").startswith(b"\xff\xd8")
    tab.click("#tokens-file")
    assert tab.downloaded("frame.tokens.jpg").startswith(b"\xff\xd8")
    tab.click("#splitter input[value=quadtree]")
    tab.move_slider("#budget input[type=range]", 50)
    settled(tab, len(quadtree))


def test_bad_uploads_are_one_sentence_each(tab: Tab, frame: Path, tmp_path: Path) -> None:
    for name, content, sentence in (
        ("notes.txt", b"not an image at all", "notes.txt: not an image in a format that can be read"),
        ("cut.png", frame.read_bytes()[:3000], "cut.png: the image is damaged or cut short"),
        ("wide.png", png_header(30000, 30000), "wide.png: 30000 x 30000 pixels are more than the 4 megapixels"),
        ("claim.png", png_header(100, 100, claims=10**9), "claim.png: the image is damaged or cut short"),
        ("empty.png", b"", "empty.png: the file is empty"),
    ):
        (tmp_path / name).write_bytes(content)
        upload(tab, tmp_path / name)
        tab.wait(f"document.querySelector('#notice .notice')?.innerText.startsWith({sentence!r})")
        assert len(tab.text("#notice .notice").splitlines()) == 1
        tab.wait("document.querySelector('#tokens').innerText == ''")
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(10**9)
    upload(tab, tmp_path / "huge.png")
    tab.wait("document.body.innerText.includes('maximum allowed size of 2.0 Mb: \"huge.png\"')")
    shown(tab, frame)
    assert tab.text("#notice") == ""
    tab.wait("document.querySelector('#found .tiles')")


def test_settings_that_cannot_be_are_one_sentence(tab: Tab, frame: Path) -> None:
    shown(tab, frame)
    tab.move_slider("#budget input[type=range]", 10)
    tab.wait(f"{KEPT} <= 12")
    tab.click("#splitter input[value=single_pass]")
    # The slider follows to the least that two scales reach.
    tab.wait("document.querySelector('#budget input[type=range]').value == 25")
    tab.wait(f"{KEPT} == 24")
    tab.move_slider("#budget input[type=range]", 60)
    tab.wait(f"Math.abs({KEPT} - {DENSE * 0.6}) <= 2")
    tab.move_slider("#budget input[type=range]", 8)
    tab.wait("document.querySelector('#budget input[type=range]').value == 25")
    tab.wait(f"{KEPT} == 24")
    assert tab.text("#notice") == ""
    tab.click("#splitter input[value=quadtree]")
    tab.wait("!document.querySelector('#rank input[type=range]').disabled")
    tab.click("#scorer input")
    tab.click("[role=option][aria-label=upsample_mse]")
    tab.wait("document.querySelector('#notice')?.innerText.startsWith('scorer: ')")
    tab.click("#scorer input")
    tab.click("[role=option][aria-label=entropy]")
    tab.wait(f"{KEPT} == 24")


def test_the_page_asks_nobody_else(tab: Tab, server: Running) -> None:
    # Comes last on purpose: the log is that of everything the tests above did.
    assert len(tab.requested) > 20
    foreign = [url for url in tab.requested if not url.startswith((server.address, "data:", "blob:"))]
    assert foreign == []
    request = Request(server.address, headers={"Accept": "text/html", "Accept-Encoding": "gzip, deflate, br"})
    with urlopen(request) as response:
        page, policy = response.read().decode(), response.headers["Content-Security-Policy"]
    hosts = set(re.findall(r"(?:https?:)?//([\w.-]+\.[a-z]{2,}|[\d.]+:\d+)", page))
    assert hosts <= {server.address.removeprefix("http://")}
    assert "default-src 'self'" in policy
    assert "http" not in policy


def test_without_a_model_the_page_says_so(tab: Tab, tmp_path: Path, frame: Path) -> None:
    with served(errors=tmp_path / "errors.txt", shipped=False) as announced:
        assert announced["model"] is None
        tab.open(announced["address"])
        tab.wait("document.querySelector('#found .hint')")
        assert "could not be loaded" in tab.text("#found")
        shown(tab, frame)
        tab.wait(f"{KEPT} > 0")
        tab.open("about:blank")


def png_header(width: int, height: int, claims: int | None = None) -> bytes:
    """The start of a PNG of that size; `claims` bytes of pixels are announced and not sent."""

    def chunk(kind: bytes, content: bytes, length: int | None = None) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content) if length is None else length) + kind + content + checksum

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000), claims)
