"""Firefox, driven over its own protocol (Marionette: JSON on a local socket); the tests need it and do not skip."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

NAMES = ("firefox-esr", "firefox")
PATIENCE = 180.0  # seconds; a machine may be busy with other things
ESCAPE = "\ue00c"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key under which WebDriver names an element

# Nothing leaves the machine: whatever is not on loopback goes to a proxy that is not there.
PREFERENCES: dict[str, bool | int | str] = {
    "network.proxy.type": 1,
    **{f"network.proxy.{kind}": "127.0.0.1" for kind in ("http", "ssl", "socks")},
    **{f"network.proxy.{kind}_port": 9 for kind in ("http", "ssl", "socks")},
    "network.proxy.no_proxies_on": "127.0.0.1",
    "network.proxy.allow_bypass": False,
    "network.proxy.failover_direct": False,
    "network.trr.mode": 5,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.http.speculative-parallel-limit": 0,
    "app.update.disabledForTesting": True,
    "app.normandy.enabled": False,
    "browser.safebrowsing.downloads.remote.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.region.network.url": "",
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "browser.startup.page": 0,
    "browser.newtabpage.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "datareporting.healthreport.uploadEnabled": False,
    "toolkit.telemetry.server": "",
    "dom.push.connection.enabled": False,
    "extensions.update.enabled": False,
    "extensions.systemAddon.update.enabled": False,
    "media.gmp-manager.updateEnabled": False,
    "services.settings.server": "",
    "marionette.port": 0,  # a free one, which it writes into the profile
}

# Errors of scripts of pages, and of the browser on their behalf, since the last time.
ERRORS = """
    const told = Services.console.getMessageArray().filter((each) => each instanceof Ci.nsIScriptError)
        .filter((each) => each.sourceName.startsWith("http") && !(each.flags & Ci.nsIScriptError.warningFlag))
        .map((each) => `${each.category}: ${each.errorMessage} (${each.sourceName}:${each.lineNumber})`);
    Services.console.reset();
    return told;
"""


class Firefox:
    """A browser with one window: commands go in and answers come out, one after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._read, self._number = connection, b"", 0
        self._receive()  # it says first who it is
        self.send("WebDriver:NewSession", capabilities={"alwaysMatch": {"unhandledPromptBehavior": "ignore"}})
        patience = round(1000 * PATIENCE)
        self.send("WebDriver:SetTimeouts", script=patience, pageLoad=patience, implicit=0)

    def send(self, command: str, **parameters: Any) -> Any:
        """Send one command; its answer."""
        self._number += 1
        text = json.dumps([0, self._number, command, parameters]).encode()
        self._connection.sendall(str(len(text)).encode() + b":" + text)
        _, _, error, answer = self._receive()
        if error:
            raise RuntimeError(f"{command}: {error['error']}: {error['message']}")
        return answer.get("value") if isinstance(answer, dict) else answer

    def _receive(self) -> Any:
        """One message: its length, a colon, JSON."""
        while b":" not in self._read or len(self._read) < self._end():
            received = self._connection.recv(1 << 20)
            if not received:
                raise RuntimeError("Firefox is gone")
            self._read += received
        end = self._end()
        message, self._read = self._read[self._read.index(b":") + 1 : end], self._read[end:]
        return json.loads(message)

    def _end(self) -> int:
        size, _, _ = self._read.partition(b":")
        return len(size) + 1 + int(size)

    def go(self, address: str) -> None:
        """Open an address and wait for its document."""
        self.send("WebDriver:Navigate", url=address)

    def value(self, expression: str, *given: Any) -> Any:
        """The value of an expression in the page."""
        return self.send("WebDriver:ExecuteScript", script=f"return {expression}", args=given, sandbox=None)

    def wait(self, expression: str, *given: Any) -> Any:
        """The value of the expression, once it is true."""
        limit, failed = time.monotonic() + PATIENCE, ""
        while time.monotonic() < limit:
            try:
                if found := self.value(expression, *given):
                    return found
            except RuntimeError as error:  # the document may just be changing
                failed = str(error)
            time.sleep(0.05)
        raise AssertionError(f"in vain waited for {expression} {failed}")

    def click(self, selector: str) -> None:
        """Click, as a person does, on the first element that can be found, once it can be."""
        self.wait("!document.querySelector(arguments[0])?.matches(':disabled') ?? false", selector)
        element = self.send("WebDriver:FindElement", using="css selector", value=selector)[ELEMENT]
        self.send("WebDriver:ElementClick", id=element)

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self.send("WebDriver:PerformActions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def privileged(self, script: str, *given: Any) -> Any:
        """Run a script as the browser itself; what it returns."""
        self.send("Marionette:SetContext", value="chrome")
        try:
            return self.send("WebDriver:ExecuteScript", script=script, args=given)
        finally:
            self.send("Marionette:SetContext", value="content")

    def errors(self) -> list[str]:
        """What scripts of pages failed with, since this was last asked."""
        found: list[str] = self.privileged(ERRORS)
        return found

    def set_width(self, pixels: int) -> None:
        """Make the page as wide as a screen; a window of Firefox cannot be as narrow as a phone."""
        script = "gBrowser.selectedBrowser.style.cssText = `max-width: ${arguments[0]}px; min-width: 0`"
        self.privileged(script, pixels)
        self.wait("innerWidth === arguments[0]", pixels)


@contextmanager
def launched(folder: Path) -> Iterator[Firefox]:
    """Start Firefox with a profile of its own in a folder, and end it."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.fail(f"no Firefox found ({', '.join(NAMES)}); `make test` installs one", pytrace=False)
    profile = folder / "profile"
    profile.mkdir()
    lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items())
    (profile / "user.js").write_text("".join(lines), encoding="utf-8")
    # The folder is its home: it keeps nothing elsewhere, and does not mind whose home another one is.
    without_sandbox = {f"MOZ_DISABLE_{part}_SANDBOX": "1" for part in ("CONTENT", "GMP", "RDD", "SOCKET_PROCESS")}
    size = {"MOZ_HEADLESS_WIDTH": "1400", "MOZ_HEADLESS_HEIGHT": "1000"}
    environment = {**os.environ, **without_sandbox, **size, "HOME": str(folder), "MOZ_CRASHREPORTER_DISABLE": "1"}
    options = ("--headless", "--no-remote", "--marionette", "--remote-allow-system-access")
    with (folder / "told.txt").open("wb") as told:
        command = [program, *options, "--profile", str(profile), "about:blank"]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=told, stderr=told)
    try:
        with socket.create_connection(("127.0.0.1", _port(profile, process)), timeout=PATIENCE) as connection:
            firefox = Firefox(connection)
            yield firefox
            with suppress(RuntimeError, OSError):
                firefox.send("Marionette:Quit", flags=["eForceQuit"])
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


def _port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    """Where it listens, once it does."""
    limit = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < limit:
        with suppress(OSError, ValueError):
            return int((profile / "MarionetteActivePort").read_text())
        time.sleep(0.05)
    told = (profile.parent / "told.txt").read_text(errors="replace")[-2000:]
    pytest.fail(f"Firefox does not listen:\n{told}", pytrace=False)
