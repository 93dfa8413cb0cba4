"""Console output: text for people with progress, or one JSON document for programs.

Results go to stdout; errors, warnings and progress go to stderr. With ``--json``, stdout holds the document and nothing
else. Names of columns and files are untrusted and are printed with control characters made visible.
Scores become tables.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from safeswap.errors import UnsafeRelease
from safeswap.model.text import plural

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import RenderableType
    from rich.progress import Progress
    from rich.table import Table

    from safeswap.errors import SafeswapError
    from safeswap.model.score import Assessment, Score

# Phrases of the Python interface, and the command-line options that replace them.
_REPLACEMENTS = (
    (re.compile(r"""\b([a-z_]+)=(["'])(.+?)\2"""), lambda m: f"--{_dash(m[1])} {_quote(m[3])}"),
    (re.compile(r"\bLimits\((\w+)=…\)"), lambda m: f"--{_dash(m[1])} N"),
    (re.compile(r"\(second_release\)"), lambda _: "with --second-release REASON"),
    (re.compile(r"\(unmasked\)"), lambda _: "with --unmasked"),
    (re.compile(r" or Key\.generate\(\)"), lambda _: ""),
    (re.compile(r"see the reference page of the method for its parameters"), lambda _: "see --help"),
)


def as_options(text: str) -> str:
    """Rewrite the keyword arguments in a hint as command-line options.

    >>> as_options('lower the rate, or on_shortfall="take" to make as many as there are')
    'lower the rate, or --on-shortfall take to make as many as there are'
    >>> as_options("state the delimiter, for example delimiter=','")
    "state the delimiter, for example --delimiter ','"
    >>> as_options("allow more with Limits(max_columns=…)")
    'allow more with --max-columns N'
    """
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


_LEAVING_OUT = re.compile(r"\bleave \w+(?: \w+){0,2} out\b|\bleave out [\w ]+")


def with_drop(hint: str) -> str:
    """Name the option that leaves columns out of a release, in a hint to do so.

    >>> with_drop("nothing was released; leave the column out, or give it another name")
    'nothing was released; leave the column out (--drop), or give it another name'
    """
    return _LEAVING_OUT.sub(r"\g<0> (--drop)", hint)


def _quote(value: str) -> str:
    return value if re.fullmatch(r"[\w-]+", value) else f"'{value}'"


def _dash(name: str) -> str:
    return name.replace("_", "-")


# Shorter work shows no progress: a line that flashes by is of no use.
PATIENCE_SECONDS = 1.0

# Output that does not go to a terminal is read by a pager or a program: do not wrap its lines.
UNWRAPPED = 10_000


@dataclass(frozen=True, kw_only=True)
class Console:
    """Output of a command. ``json`` silences text for people, ``quiet`` all but errors and the document."""

    json: bool = False
    quiet: bool = False

    @property
    def is_read(self) -> bool:
        """True if people read what is printed."""
        return not self.json and not self.quiet

    def say(self, *parts: RenderableType, gap: bool = False) -> None:
        """Print a result for people, after an empty line if there is to be a ``gap``."""
        if self.is_read:
            _rich(sys.stdout).print(*([""] if gap else []), *parts, sep="\n" if gap else " ")

    def say_places(self, *places: tuple[str, Any, str]) -> None:
        """Print what was made, where it is and who may see it."""
        if self.is_read:
            self.say(table(["made", "where", ""], places), gap=True)

    def warn(self, text: str) -> None:
        """Print a warning for people."""
        if self.is_read:
            _rich(sys.stderr).print(escape(text), style="yellow")

    def result(self, document: dict[str, Any]) -> None:
        """Print the result for programs: the one document on stdout."""
        if self.json:
            _write_json(document)

    def fail(self, error: SafeswapError) -> None:
        """Print an error and its hint."""
        if self.json:
            _write_json({**error.as_dict(), "exit_code": error.exit_code})
            return
        stderr = _rich(sys.stderr)
        stderr.print(_join_styled(("error: ", "bold red"), (escape(error.message), "red")))
        if error.hint:
            hint = with_drop(error.hint) if isinstance(error, UnsafeRelease) else error.hint
            stderr.print(_join_styled(("hint: ", "bold"), (escape(as_options(hint)), "")))

    @contextmanager
    def steps(self, total: int) -> Iterator[Steps]:
        """Show progress, on a terminal only and only if the work takes more than a second."""

        steps = Steps(total=total, shown=not self.quiet and _is_terminal(sys.stderr))
        try:
            yield steps
        finally:
            steps.close()


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


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", right: str = "") -> Table:
    """Make a table; ``right`` has one letter per column, ``r`` to align it right. Cells are shown verbatim.

    >>> table(["attribute", "levels"], [["Sex", 2]], right="lr").row_count
    1
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for position, column in enumerate(columns):
        figures = right[position : position + 1] == "r"
        made.add_column(Text(column), justify="right" if figures else "left", overflow="fold", no_wrap=figures)
    for row in rows:
        made.add_row(*(Text(escape(str(cell))) for cell in row))
    return made


def escape(text: str) -> str:
    r"""Escape unprintable characters: a column name must not control the terminal.

    >>> escape("Age\x1b[2J")
    'Age\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def to_json_value(value: Any) -> Any:
    """Convert a value to JSON types: NumPy numbers to Python's, NaN and infinity to null, anything else to text.

    >>> to_json_value({"value": float("nan"), "names": ("a", "b")})
    {'value': None, 'names': ['a', 'b']}
    """
    if isinstance(value, dict):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json_value(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return to_json_value(value.item()) if hasattr(value, "item") else str(value)


def _write_json(document: dict[str, Any]) -> None:
    text = json.dumps(to_json_value(document), indent=2, ensure_ascii=_encoding(sys.stdout) != "utf-8", allow_nan=False)
    sys.stdout.write(text + "\n")


def _rich(stream: TextIO) -> RichConsole:
    from rich.console import Console as RichConsole

    width = None if _is_terminal(stream) else UNWRAPPED
    return RichConsole(file=stream, highlight=False, markup=False, emoji=False, width=width)


def _join_styled(*parts: tuple[str, str]) -> RenderableType:
    from rich.text import Text

    return Text.assemble(*parts)


def _is_terminal(stream: TextIO) -> bool:
    return not stream.closed and stream.isatty()


def _encoding(stream: TextIO) -> str:
    return (getattr(stream, "encoding", None) or "ascii").lower()


# Enough for every two-way table of eleven attributes; --json gives longer lists.
MOST_TABLES = 55

_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")


def score_table(assessment: Assessment, *, brief: bool = False) -> Table:
    """Make a table with the axis, value and meaning of each measure; ``brief`` keeps the first sentence only.

    Under a scenario the table has its name, and the value before. Sentences that several figures share are left to
    :func:`say_shared`.
    """
    shared = _shared_sentences(assessment)
    under = any(score.scenario for score in assessment)
    rows = [
        (
            score.measure,
            score.axis.value,
            *((score.scenario or "–",) if under else ()),
            figure(score.value) if score.before is None else f"{figure(score.before)} → {figure(score.value)}",
            " ".join(_sentences(score)[:1] if brief else [each for each in _sentences(score) if each not in shared]),
        )
        for score in assessment
    ]
    if under:
        return table(["measure", "axis", "scenario", "before → after", "meaning"], rows, right="lllrl")
    return table(["measure", "axis", "value", "meaning"], rows, right="llrl")


def say_shared(console: Console, assessment: Assessment) -> None:
    """Print what is true of several figures once, below their table."""
    for sentence in _shared_sentences(assessment):
        console.say(sentence)


def _shared_sentences(assessment: Assessment) -> list[str]:
    counted = Counter(sentence for score in assessment for sentence in _sentences(score)[1:])
    return [sentence for sentence, times in counted.items() if times > 1]


def _sentences(score: Score) -> list[str]:
    return _SENTENCE_END.split(score.sentence)


def say_left_out(console: Console, assessment: Assessment) -> None:
    """Print the usual measures that do not apply, with the reason."""
    for sentence in assessment.left_out_sentences:
        console.say(sentence)


def small_tables(assessment: Assessment, *, ways: int) -> Table | None:
    """Make a table of the changed tables of ``ways`` attributes, with the value of each measure that has one."""
    columns = {score.measure: found for score in assessment if (found := _by_table(score, ways))}
    if not columns:
        return None
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    changed = [name for name in names if any(column.get(name) for column in columns.values())]
    rows = [[" × ".join(name), *(figure(column.get(name)) for column in columns.values())] for name in changed]
    title = f"{len(changed):,} of {plural(len(names), 'table')} of {plural(ways, 'attribute')} changed"
    if len(rows) > MOST_TABLES:
        title += f"; the first {MOST_TABLES} are shown, --json lists all"
    return table(["table", *columns], rows[:MOST_TABLES], title=title, right="l" + "r" * len(columns))


def figure(value: float | None) -> str:
    """Format a number with the digits that matter.

    >>> figure(0.0123456), figure(0), figure(None)
    ('0.01235', '0', '–')
    """
    return "–" if value is None else f"{value:.4g}"


def _by_table(score: Score, ways: int) -> dict[tuple[str, ...], float]:
    if score.detail is None or "attributes" not in score.detail.column_names:
        return {}
    rows = score.detail.select(["attributes", "value"]).to_pylist()
    return {tuple(row["attributes"]): row["value"] for row in rows if len(row["attributes"]) == ways}
