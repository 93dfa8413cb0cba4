"""A Chromium that nobody watches: driven over its debugging pipe, with none of its recorders switched on.

Test tools record every request, and with it the stack of the script that asked. Plotly asks for two tiny pictures while
it starts; for their stacks the browser reads the five million characters three times more, half a second in which a
person's own browser has long drawn the chart. ``record`` switches the recorder on, to see that.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
PATIENCE = 60.0  # seconds


class Chromium:
    """The browser: commands go in and answers come out, one after the other."""

    def __init__(self, folder: Path, *, record: bool = False) -> None:
        told, self._commands = os.pipe()
        self._answers, answered = os.pipe()

        def as_three_and_four() -> None:  # where Chromium expects them
            given = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (told, answered)]
            for number, each in enumerate(given, start=3):
                os.dup2(each, number)

        program = next(filter(None, map(shutil.which, NAMES)))
        command = [program, "--headless=new", *FLAGS, "--remote-debugging-pipe", "--no-startup-window"]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}", "--window-size=1280,720"],
            preexec_fn=as_three_and_four,  # noqa: PLW1509  (there are no threads here)
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(told)
        os.close(answered)
        self._record = record
        self._number = 0
        self._read = b""

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send one command; its answer."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        os.write(self._commands, json.dumps(command | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            while b"\0" not in self._read:
                self._read += os.read(self._answers, 1 << 20) or b'{"id": -1}\0'
            text, _, self._read = self._read.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == -1:
                raise RuntimeError("the browser is gone")
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                found: dict[str, Any] = answer["result"]
                return found

    def close(self) -> None:
        with suppress(RuntimeError, OSError):
            self.send("Browser.close")
        self._process.wait(60)
        os.close(self._commands)
        os.close(self._answers)

    @contextmanager
    def page(self, script: str = "") -> Iterator[Page]:
        """A new page; the script runs in each of its documents before anything else."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        page.send("Page.enable")
        for recorder in ("Runtime", "Network") if self._record else ():
            page.send(f"{recorder}.enable")
        page.send("Page.addScriptToEvaluateOnNewDocument", source=script)
        page.send("Page.bringToFront")
        page.wait("document.visibilityState === 'visible'")  # nothing is painted where nobody looks
        yield page
        self.send("Target.closeTarget", targetId=target)


class Page:
    """One page of the browser."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **parameters)

    def go(self, address: str) -> None:
        self.send("Page.navigate", url=address)

    def value(self, expression: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def wait(self, expression: str, pause: float = 0.05) -> Any:
        """The value of the expression, once it is true."""
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            with suppress(RuntimeError):  # the document may just be changing
                if found := self.value(expression):
                    return found
            time.sleep(pause)
        raise RuntimeError(f"in vain waited for {expression}")
