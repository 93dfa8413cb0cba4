"""Open a page from the disk, and keep account of everything it does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page


@dataclass
class Opened:
    """A page, what it asked for and what it complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def part(self, name: str) -> Locator:
        return self.page.locator(f'.safeswap-map [data-part="{name}"]')

    def rows(self) -> list[dict[str, str]]:
        """The lines of the table below the map, by the titles of its columns."""
        return self.page.evaluate(
            """() => {
                const table = document.querySelector('.safeswap-map table[data-part="table"]');
                const heads = [...table.querySelectorAll("thead th")];
                const titles = heads.map((th) => th.textContent.replace(/ [↑↓]$/, ""));
                const values = (tr) => [...tr.cells].map((td, i) => [titles[i], td.dataset.value ?? td.textContent]);
                const marks = (tr) => [["spec", tr.dataset.spec], ["candidate", tr.dataset.candidate]];
                const rows = [...table.querySelectorAll("tbody tr")];
                return rows.map((tr) => Object.fromEntries(values(tr).concat(marks(tr))));
            }"""
        )

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where on the screen a point of the map is."""
        return tuple(
            self.page.evaluate(
                """([x, y]) => {
                    const plot = document.querySelector('.safeswap-map [data-part="plot"]');
                    const { xaxis, yaxis } = plot._fullLayout, frame = plot.getBoundingClientRect();
                    return [frame.left + xaxis._offset + xaxis.l2p(x), frame.top + yaxis._offset + yaxis.l2p(y)];
                }""",
                [x, y],
            )
        )

    def settle(self) -> None:
        """Wait until the browser has drawn what was asked for."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.page.wait_for_timeout(150)


@contextmanager
def opened(browser: Browser, path: Path, *, dark: bool = False, width: int = 1280) -> Iterator[Opened]:
    context = browser.new_context(
        viewport={"width": width, "height": 1000}, color_scheme="dark" if dark else "light", offline=True
    )
    seen = Opened(context.new_page())
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    # What the graphics driver of a machine without a graphics card says of its speed is no complaint of the page.
    seen.page.on(
        "console",
        lambda message: None if "GL Driver Message" in message.text else seen.complaints.append(message.text),
    )
    seen.page.goto(path.as_uri())
    if seen.page.locator(".safeswap-map").count():
        seen.page.wait_for_selector(".safeswap-map[data-ready]")
    seen.settle()
    try:
        yield seen
    finally:
        context.close()
