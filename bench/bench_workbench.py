"""How long each screen of the workbench takes to be there, and how much it loads.

    python bench/bench_workbench.py [--records 48842] [--repeats 5] [--screens map,records] [--recorded]

The program runs as its user runs it, on loopback, in a browser with a profile on disk. A first load is one with an
empty cache; repeats come from another screen of the workbench, as a person comes who goes to and fro, or from a blank
page, for which a browser starts a process of its own. Seconds are counted from the start of the navigation until the
chart is drawn or, on a screen without one, until all is shown, and a frame was painted; bytes are those that were sent.
Chromium keeps the compiled form of a script from its second run on; a page that is new has it made, so that the first
repeat is as quick as the others. The browser records nothing meanwhile, as a person's does not; ``--recorded`` switches
on the recorder of requests that test tools have always on, and shows what that costs (``quiet_chromium.py``).
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goals import judge
from quiet_chromium import Chromium, Page
from safeswap import datasets
from safeswap.files.write import write
from safeswap.service.client import Client
from safeswap.service.routes.jobs import Job

CHARTS = {"map": ".safeswap-map", "records": ".safeswap-plot"}
ROOMS = ("households", "indicators", "attacks")  # of the shipped household survey
SCREENS = ("data", "risk", "method", "tables", "map", "records", "release", "log", "result", *ROOMS)
SHARE = '[[indicators]]\nstatistic = "share"\nof = "tenure"\nlevel = "1"\nby = ["region"]\n'

# Hears of it in the moment it is ready, and notes when the next frame was painted; that is asked for afterwards.
WATCH = """((chart) => {
    window.benchSeen = {};
    const seen = (events, watching) => {
        if (!document.querySelector((chart || "html") + "[data-ready]")) return;
        watching.disconnect();
        requestAnimationFrame(() => setTimeout(() => { window.benchSeen.there = performance.now(); }));
    };
    const what = { subtree: true, childList: true, attributes: true, attributeFilter: ["data-ready"] };
    new MutationObserver(seen).observe(document, what);
})"""
SIZES = """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .map((entry) => [entry.name, entry.startTime, entry.responseEnd, entry.transferSize])"""


@dataclass(frozen=True)
class Load:
    """One load of a screen."""

    seconds: float
    bytes_sent: int
    requests: list[list[Any]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=48_842)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--screens", default=",".join(SCREENS))
    parser.add_argument("--requests", action="store_true", help="tell what was asked for in the last repeat, and when")
    parser.add_argument("--recorded", action="store_true", help="with the recorder that test tools have always on")
    stated = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), stated.records) as (found, another_token):
        address, token, project = found
        paths = worked(address, token, project)
        browser = Chromium(Path(folder) / "profile", record=stated.recorded)
        with browser.page() as door:  # open to the end: with its last page a browser forgets who was let in
            door.go(f"{address}/open#token={another_token()}&project={project}")
            door.wait("location.pathname.endsWith('/data') && document.documentElement.dataset.ready")
            print(f"{'screen':10} {'first':>9} {'MB':>6} {'repeat':>9} {'KB':>7} {'from blank':>11}   singly")
            for screen in stated.screens.split(","):
                another = address + paths["log" if screen != "log" else "release"]
                with browser.page(f"{WATCH}({CHARTS.get(screen, '')!r})") as page:
                    told(screen, measured(page, address + paths[screen], another, stated.repeats))
                    if stated.requests:
                        listed(loaded(page, address + paths[screen]), address)
        browser.close()


@contextmanager
def running(folder: Path, records: int) -> Iterator[tuple[tuple[str, str, str], Callable[[], str]]]:
    """The workbench on a file, as a program of its own: address, token and project, and what gives another token."""
    lines = folder / "survey.csv"
    write(datasets.cps8d(), lines)
    kept = lines.read_text(encoding="utf-8").splitlines()[: records + 1]
    lines.write_text("\n".join(kept) + "\n", encoding="utf-8")
    told = folder / "told.txt"  # a file, not a pipe: what nobody reads fills a pipe, and the program waits
    command = [sys.executable, "-m", "safeswap", "workbench", str(lines), "--no-browser"]
    with told.open("w") as out:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)

    def another_token() -> str:
        assert server.stdin is not None
        server.stdin.write(b"\n")
        server.stdin.flush()
        return address_in(told, server, number=1)[1]

    try:
        yield address_in(told, server), another_token
    finally:
        server.terminate()
        server.wait(60)


def address_in(told: Path, server: subprocess.Popen[bytes], *, number: int = 0) -> tuple[str, str, str]:
    """An address that the workbench printed: each lets one in."""
    while server.poll() is None:
        found = re.findall(r"(http://[\d.:]+)/open#token=([\w-]+)&project=([\w-]+)", told.read_text())
        if len(found) > number:
            return found[number]
        time.sleep(0.1)
    raise RuntimeError("the workbench did not start")


def worked(address: str, token: str, project: str) -> dict[str, str]:
    """Something to see on every screen; the path of each."""
    with Client(address, start_token=token) as client:
        for job in client._send("GET", f"/projects/{project}/jobs").json()["items"]:
            client.wait(client.job(job["id"]))
        study = client.study(project, replicates=3)
        masked = client.mask(project, {"method": "swap", "swap": ["Race"], "rate": 0.05})
        client.wait(study)
        masking = client.wait(masked).result
        assert masking is not None
        client.wait(client.plot_confidentiality(project, masking.id, ["Age", "Edu", "MS", "Race", "Sex"]))
        homes = homes_in(client)
    paths = {screen: f"/projects/{homes if screen in ROOMS else project}/{screen}" for screen in SCREENS}
    return {**paths, "result": f"/projects/{project}/results/{masking.id}"}


def homes_in(client: Client) -> str:
    """A project with the shipped household survey, a masking, its attacks and its indicators."""
    project = client.make_project("Homes").id
    client.wait(client._post(Job, f"/projects/{project}/data-from-sample", {"sample": "household_survey"}))
    masking = client.wait(client.mask(project, {"method": "swap", "swap": ["tenure"], "rate": 0.05})).result
    assert masking is not None
    for job in (client.attack(project, masking.id, full=False), client.assess(project, masking.id, indicators=SHARE)):
        client.wait(job)
    return project


@dataclass(frozen=True)
class Loads:
    """All loads of a screen."""

    first: Load
    repeats: list[Load]
    from_blank: list[Load]


def measured(page: Page, address: str, another: str, repeats: int) -> Loads:
    """The first load with an empty cache, then the repeats, from another screen and from a blank page."""
    page.send("Network.clearBrowserCache")
    return Loads(
        first=loaded(page, address),
        repeats=[loaded(page, address, after=another) for _ in range(repeats)],
        from_blank=[loaded(page, address) for _ in range(repeats)],
    )


def loaded(page: Page, address: str, *, after: str = "about:blank") -> Load:
    page.go(after)
    time.sleep(0.5)
    page.go(address)
    time.sleep(0.7)  # a question is work for the browser: most loads are done before the first
    milliseconds = page.wait("window.benchSeen?.there", pause=0.3)
    sizes = page.value(SIZES)
    time.sleep(0.3)  # what is done after the screen is there belongs to this load, not to the next
    return Load(milliseconds / 1000, sum(size for *_, size in sizes), sizes)


def told(screen: str, loads: Loads) -> None:
    repeats = [load.seconds for load in loads.repeats]
    blank = [load.seconds for load in loads.from_blank]
    singly = "; ".join(" ".join(f"{each:.2f}" for each in seconds) for seconds in (repeats, blank))
    print(
        f"{screen:10} {loads.first.seconds:7.2f} s {loads.first.bytes_sent / 1e6:6.2f}"
        f" {statistics.median(repeats):7.2f} s {loads.repeats[-1].bytes_sent / 1e3:7.1f}"
        f" {statistics.median(blank):9.2f} s   {singly}",
        flush=True,
    )
    judge(f"workbench, first load of {screen}", loads.first.seconds, 0.8, unit="s")
    judge(f"workbench, repeated load of {screen}", statistics.median(blank), 0.5, unit="s")
    judge(f"workbench, size of {screen}", loads.first.bytes_sent / 1e6, 1, unit="MB")


def listed(load: Load, address: str) -> None:
    for name, start, end, size in sorted(load.requests, key=lambda each: each[1]):
        print(f"    {start:7.0f} – {end:5.0f} ms {size:9,} bytes  {name.removeprefix(address)[-80:]}")


if __name__ == "__main__":
    main()
