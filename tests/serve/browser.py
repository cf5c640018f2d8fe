"""Chromium driven over its DevTools protocol: just enough to use a page as a visitor does and to see what it asks for.

Nothing is waited for by the clock: `wait` polls an expression until it holds.
"""

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import websocket

PATIENCE = 300.0
"""Seconds anything may take before it counts as hanging: a loaded machine is no error."""


def find_chromium() -> str | None:
    """The browser's program, where there is one."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def browser(program: str, width: int = 1440, height: int = 900) -> Iterator["Tab"]:
    """A tab of a fresh headless browser with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        arguments = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--remote-debugging-port=0", "--remote-allow-origins=*",
            "--hide-scrollbars", f"--window-size={width},{height}", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with closing(Tab(Path(profile))) as tab:
                metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                tab.call("Emulation.setDeviceMetricsOverride", **metrics)
                yield tab
        finally:
            process.kill()
            process.wait()


class Tab:
    """One page: commands in, events kept."""

    def __init__(self, profile: Path) -> None:
        self.downloads = profile / "downloads"
        self.requested: list[str] = []
        self._number = 0
        announced = profile / "DevToolsActivePort"
        _until(lambda: announced.is_file() and len(announced.read_text().splitlines()) == 2, "the browser to start")
        port, path = announced.read_text().splitlines()
        self.socket = websocket.create_connection(f"ws://127.0.0.1:{port}{path}", timeout=PATIENCE)
        self._session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "DOM"):
            self.call(f"{domain}.enable")
        self.downloads.mkdir()
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))

    def close(self) -> None:
        """Let go of the browser."""
        self.socket.close()

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self.socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while True:
            received = json.loads(self.socket.recv())
            if received.get("method") == "Network.requestWillBeSent":
                self.requested.append(received["params"]["request"]["url"])
            if received.get("id") == self._number:
                if "error" in received:
                    raise RuntimeError(f"{method}: {received['error']['message']}")
                return received["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", expression))
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Return once an expression is true in the page."""
        _until(lambda: self.evaluate(f"Boolean({expression})"), expression)

    def text(self, selector: str) -> str:
        """What a part of the page reads."""
        found = self.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")
        return str(found)

    def open(self, address: str) -> None:
        """Go to a page."""
        self.call("Page.navigate", url=address)

    def choose_file(self, selector: str, path: Path) -> None:
        """Give a file to a file input, as the dialog would."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def move_slider(self, selector: str, value: float) -> None:
        """Put a range input at a value, with the events a drag makes."""
        self.evaluate(
            f"""(() => {{ const slider = document.querySelector({selector!r});
            Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(slider, {value});
            slider.dispatchEvent(new Event('input', {{bubbles: true}}));
            slider.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"""
        )

    def click(self, selector: str) -> None:
        """Press the mouse on the middle of an element."""
        self.evaluate(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        x, y = self.evaluate(
            f"(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key, as named by the web."""
        codes = {"Tab": 9, "ArrowRight": 39}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def downloaded(self, name: str) -> bytes:
        """The content of a file once it has been downloaded."""
        path = self.downloads / name
        # The browser writes under another name until the file is whole.
        _until(path.is_file, f"{name} to be downloaded")
        return path.read_bytes()

    def screenshot(self, path: Path) -> None:
        """Write what is seen, as the file's suffix says."""
        kind = "jpeg" if path.suffix == ".jpg" else "png"
        quality = {"quality": 85} if kind == "jpeg" else {}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format=kind, **quality)["data"]))


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.05)
