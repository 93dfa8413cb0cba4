"""What ``safeswap study`` shows: a bar with the time left, the frontier, what was rejected, where things are."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from safeswap.cli.console import Console, table
from safeswap.cli.scores import figure

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from safeswap.search.choice import Choice
    from safeswap.search.study import Study

MOST_ROWS = 40
"""So many rows of a frontier are shown; the rest is in the files."""


class Bar:
    """How many candidates are done and how long the rest will take, on stderr and only on a terminal.

    >>> with Bar(Console(quiet=True)) as bar:
    ...     bar(3, 12)
    >>> bar.done, bar.total
    (3, 12)
    """

    def __init__(self, console: Console) -> None:
        self.done = self.total = 0
        self._shown = not console.quiet and sys.stderr.isatty()
        self._progress: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        """So many of so many are done."""
        self.done, self.total = done, total
        if self._progress:
            self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def __enter__(self) -> Self:
        if self._shown:
            self._progress = _made()
            self._progress.add_task("candidates", total=None)
            self._progress.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._progress:
            self._progress.stop()


def _made() -> Progress:
    from rich import progress
    from rich.console import Console as RichConsole

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=32),
        progress.MofNCompleteColumn(),
        progress.TextColumn("time left", markup=False),
        progress.TimeRemainingColumn(),
        console=RichConsole(file=sys.stderr, highlight=False, markup=False, emoji=False),
        transient=True,
    )


def frontier_rows(study: Study) -> list[dict[str, Any]]:
    """The frontier: of the specifications' means where there are replicates, else of the candidates themselves."""
    import numpy as np

    from safeswap.kernels.dominance import undominated

    summary = study.summary()
    risk, distortion = (summary.column(f"{axis}_mean").to_numpy() for axis in ("risk", "distortion"))
    rows = np.flatnonzero(undominated(risk, distortion))
    return [summary.slice(int(i), 1).to_pylist()[0] for i in rows[np.argsort(distortion[rows], kind="stable")]]


def frontier_table(study: Study, choice: Choice | None) -> Table:
    """The frontier for people, from least to most distortion; the chosen one is marked."""
    rows = frontier_rows(study)
    several = study.spec.replicates > 1
    constrained = any(row["constraint"] for row in rows)
    columns = ["swapped", *(["constraints"] if constrained else []), "rate", "risk", "distortion"]
    columns += ["on the frontier", ""] if several else [""]
    title = f"The frontier: {len(rows):,} of {len(study.specs):,} specifications"
    title += ", by the mean over replicates (± standard deviation)" if several else ""
    shown = [_row(study, row, several=several, constrained=constrained, choice=choice) for row in rows[:MOST_ROWS]]
    more = f"; the first {MOST_ROWS} of them" if len(rows) > MOST_ROWS else ""
    right = "l" + ("l" if constrained else "") + "rrr" + ("rl" if several else "l")
    return table(columns, shown, title=title + more, right=right)


def _row(study: Study, row: dict[str, Any], *, several: bool, constrained: bool, choice: Choice | None) -> list[str]:
    number = row["specification"]
    cells = [", ".join(study.table.column("swap")[number].as_py()) or row["label"]]
    cells += [row["constraint"] or "none"] if constrained else []
    cells.append("–" if row["rate"] is None else f"{row['rate']:g}")
    for axis in ("risk", "distortion"):
        spread = row[f"{axis}_sd"]
        cells.append(figure(row[f"{axis}_mean"]) + (f" ± {spread:.1g}" if spread is not None else ""))
    cells += [f"{row['on_frontier']:.0%} of draws"] if several else []
    chosen = choice is not None and choice.candidate % len(study.specs) == number
    return [*cells, "← chosen" if chosen else ""]


def rejected_lines(study: Study) -> list[str]:
    """What could not be made, grouped; at most ten lines."""
    counts = _rejected(study)
    if not counts:
        return []
    lines = [f"{sum(counts.values()):,} of {len(study):,} candidates could not be made:"]
    for (label, constraint, rate, reason), times in list(counts.items())[:10]:
        where = "".join([f" at rate {rate:g}" if rate is not None else "", f" ({constraint})" if constraint else ""])
        lines.append(f"  {label}{where}: {reason}" + (f" ({times:,} draws)" if times > 1 else ""))
    if len(counts) > 10:
        lines.append(f"  and {len(counts) - 10:,} more; all are in study.parquet")
    return lines


def _rejected(study: Study) -> Counter[tuple[Any, ...]]:
    """How often each specification was rejected; the first reason stands for all."""
    counts: Counter[tuple[Any, ...]] = Counter()
    reasons: dict[tuple[Any, ...], str] = {}
    for row in study.rejected().to_pylist():
        name = (row["label"], row["constraint"], row["rate"])
        counts[*name, reasons.setdefault(name, row["reason"])] += 1
    return counts


def places(output: Path, *, pages: bool, choice: bool) -> Table:
    """Where the results are."""
    rows = [("figures", output / "study.parquet", "one row per candidate; stays inside")]
    if pages:
        rows.append(("map", output / "map.html", "to look at; stays inside"))
    if pages and choice:
        rows.append(("report", output / "report.html", "stays inside"))
        rows.append(("public report", output / "report-public.html", "may leave with the release"))
    return table(["made", "where", ""], rows)


def masking_command(
    choice: Choice, file: Path, key: Path | None, insecure_seed: int | None, reading: Mapping[str, Any]
) -> str:
    """The call that makes the chosen draw as a file, ready to be pasted into a shell."""
    from safeswap.charts.spec_text import command_text

    text = command_text(choice.spec, replicate=choice.replicate)
    secret = f"--insecure-seed {insecure_seed}" if key is None else f"--key {shlex.quote(str(key))}"
    options = [
        f"--{name} {shlex.quote(str(value))}" for name, value in reading.items() if isinstance(value, (str, Path))
    ]
    words = " ".join([shlex.quote(str(file)), *options])
    return text.replace(" data.csv ", f" {words} ", 1).replace("--key secret.key", secret, 1)


def document(study: Study, choice: Choice | None) -> dict[str, Any]:
    """The result for programs."""
    rejected = [
        {"label": label, "constraint": constraint, "rate": rate, "reason": reason, "draws": times}
        for (label, constraint, rate, reason), times in _rejected(study).items()
    ]
    return {
        "candidates": len(study),
        "specifications": len(study.specs),
        "replicates": study.spec.replicates,
        "rejected": rejected,
        "frontier": [{**row, "spec": study.specs[row["specification"]].as_dict()} for row in frontier_rows(study)],
        "choice": None if choice is None else choice.as_dict(),
        "search": study.facts.get("search"),
        "for_release": study.facts["for_release"],
    }
