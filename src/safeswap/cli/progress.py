"""Progress on the terminal, for work that takes longer than a second."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

# Shorter work shows no progress: a line that flashes by is of no use.
PATIENCE_SECONDS = 1.0


class Steps:
    """Progress by named steps, shown once the work has taken a second.

    >>> steps = Steps(total=2, shown=False)
    >>> steps.at("reading")
    >>> steps.done
    0
    >>> steps.at("masking")
    >>> steps.done
    1
    >>> steps.close()
    """

    def __init__(self, *, total: int, shown: bool, patience: float = PATIENCE_SECONDS) -> None:
        self.total = total
        self.done = -1
        self._name = ""
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._closed = False
        self._timer = threading.Timer(patience, self._show) if shown else None
        if self._timer:
            self._timer.daemon = True
            self._timer.start()

    def at(self, name: str) -> None:
        """Begin the next step."""
        with self._lock:
            self.done += 1
            self._name = name
            self._update()

    def close(self) -> None:
        """End the work, successful or not, and remove the progress line."""
        if self._timer:
            self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._progress:
                self._progress.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._closed:
                return
            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=24))
            console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
            self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
            self._progress.add_task(self._name, total=self.total)
            self._update()
            self._progress.start()

    def _update(self) -> None:
        if self._progress:
            self._progress.update(self._progress.task_ids[0], completed=max(self.done, 0), description=self._name)
