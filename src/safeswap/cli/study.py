"""``safeswap study``."""

from __future__ import annotations

import csv
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from safeswap.cli.console import Console, escape, figure, table
from safeswap.cli.options import (
    OUTPUT,
    Force,
    InsecureSeed,
    KeyFile,
    Shown,
    check_outputs,
    command,
    names,
    option,
    randomness,
    reading_options,
    request_options,
    spec_options,
)
from safeswap.errors import InfeasibleError, OutputError
from safeswap.model.study import ConstraintSet, StudySpec
from safeswap.model.text import list_names, plural

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from safeswap.model.microdata import Microdata
    from safeswap.studies.choice import Choice
    from safeswap.studies.run import CheckpointDirectory
    from safeswap.studies.study import Study

MOST_ROWS = 40
"""Maximum number of rows of a frontier to show; the rest is in the files."""


class Bar:
    """Progress bar with the time left, on stderr and only on a terminal.

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
        """Show progress as done/total."""
        self.done, self.total = done, total
        if self._shown and self._progress is None:
            self._progress = _make_progress()
            self._progress.add_task("candidates", total=None)
            self._progress.start()
        if self._progress:
            self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._progress:
            self._progress.stop()


def _make_progress() -> Progress:
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
    """Return the frontier: of the specifications' means if there are replicates, else of the candidates."""
    import numpy as np

    from safeswap.model.study import find_undominated

    summary = study.summary()
    risk, distortion = (summary.column(f"{axis}_mean").to_numpy() for axis in ("risk", "distortion"))
    rows = np.flatnonzero(find_undominated(risk, distortion))
    return [summary.slice(int(i), 1).to_pylist()[0] for i in rows[np.argsort(distortion[rows], kind="stable")]]


def frontier_table(study: Study, choice: Choice | None) -> Table:
    """Make a table of the frontier, from least to most distortion, with the chosen one marked."""
    rows = frontier_rows(study)
    replicated = study.spec.replicates > 1
    constrained = any(row["constraint"] for row in rows)
    columns = ["swapped", *(["constraints"] if constrained else []), "rate", "risk", "distortion"]
    columns += ["on the frontier", ""] if replicated else [""]
    title = f"Frontier: {len(rows):,} of {plural(len(study.specs), 'specification')}"
    title += ", by the mean over replicates (± standard deviation)" if replicated else ""
    shown = [
        _frontier_row(study, row, replicated=replicated, constrained=constrained, choice=choice)
        for row in rows[:MOST_ROWS]
    ]
    shown = [*_original_row(study, len(columns), constrained=constrained), *shown]
    more = f"; the first {MOST_ROWS} are shown" if len(rows) > MOST_ROWS else ""
    right = "l" + ("l" if constrained else "") + "rrr" + ("rl" if replicated else "l")
    return table(columns, shown, title=title + more, right=right)


def _original_row(study: Study, width: int, *, constrained: bool) -> list[list[str]]:
    """Make the line of the untouched original, which is not counted as a candidate; none if its figures are unknown."""
    from safeswap.charts.points import original_point

    where = original_point(study, study.spec.risk[0], study.spec.distortion[0])
    if where is None:
        return []
    cells = ["(untouched original)", *([""] if constrained else []), "–", *(figure(value) for value in where)]
    return [[*cells, *[""] * (width - len(cells))]]


def _frontier_row(
    study: Study, row: dict[str, Any], *, replicated: bool, constrained: bool, choice: Choice | None
) -> list[str]:
    number = row["specification"]
    cells = [list_names(study.table.column("swap")[number].as_py()) or row["label"]]
    cells += [row["constraint"] or "none"] if constrained else []
    cells.append("–" if row["rate"] is None else f"{row['rate']:g}")
    for axis in ("risk", "distortion"):
        spread = row[f"{axis}_sd"]
        cells.append(figure(row[f"{axis}_mean"]) + (f" ± {spread:.1g}" if spread is not None else ""))
    cells += [f"{row['on_frontier']:.0%} of draws"] if replicated else []
    chosen = choice is not None and choice.candidate % len(study.specs) == number
    return [*cells, "← chosen" if chosen else ""]


def rejected_lines(study: Study) -> list[str]:
    """Describe the candidates that could not be made, grouped, in at most ten lines."""
    counts = _count_rejected(study)
    if not counts:
        return []
    lines = [f"{sum(counts.values()):,} of {plural(len(study), 'candidate')} could not be made:"]
    for (label, constraint, rate, reason), times in list(counts.items())[:10]:
        where = "".join([f" at rate {rate:g}" if rate is not None else "", f" ({constraint})" if constraint else ""])
        lines.append(f"  {label}{where}: {reason}" + (f" ({times:,} draws)" if times > 1 else ""))
    if len(counts) > 10:
        lines.append(f"  and {len(counts) - 10:,} more; all are in study.parquet")
    return lines


def _count_rejected(study: Study) -> Counter[tuple[Any, ...]]:
    """Count how often each specification was rejected, with the first reason given."""
    counts: Counter[tuple[Any, ...]] = Counter()
    reasons: dict[tuple[Any, ...], str] = {}
    for row in study.rejected().to_pylist():
        name = (row["label"], row["constraint"], row["rate"])
        counts[*name, reasons.setdefault(name, row["reason"])] += 1
    return counts


def _places_table(output: Path, *, pages: bool, choice: bool) -> Table:
    """Make a table of where the results are."""
    rows = [("figures", output / "study.parquet", "one row per candidate; confidential")]
    if pages:
        rows.append(("map", output / "map.html", "interactive; confidential"))
    if pages and choice:
        rows.append(("report", output / "report.html", "confidential"))
        rows.append(("public report", output / "report-public.html", "may be published with the release"))
    return table(["made", "where", ""], rows)


def _masking_command(choice: Choice, file: Path, options: StudyOptions, reading: Mapping[str, Any]) -> str:
    """Return the shell command that writes the chosen draw as a masked file."""
    from safeswap.charts.spec_text import command_text

    text = command_text(choice.spec, replicate=choice.replicate)
    key = options.key
    secret = f"--insecure-seed {options.insecure_seed}" if key is None else f"--key {shlex.quote(str(key))}"
    how_read = [
        f"--{name} {shlex.quote(str(value))}" for name, value in reading.items() if isinstance(value, (str, Path))
    ]
    words = " ".join([shlex.quote(str(file)), *how_read])
    return text.replace(" data.csv ", f" {words} ", 1).replace("--key secret.key", secret, 1)


def _document(study: Study, choice: Choice | None) -> dict[str, Any]:
    """Return the result for programs."""
    rejected = [
        {"label": label, "constraint": constraint, "rate": rate, "reason": reason, "draws": times}
        for (label, constraint, rate, reason), times in _count_rejected(study).items()
    ]
    return {
        "candidates": len(study),
        "specifications": len(study.specs),
        "replicates": study.spec.replicates,
        "rejected": rejected,
        "frontier": [{**row, "spec": study.specs[row["specification"]].as_dict()} for row in frontier_rows(study)],
        "original": dict(study.facts.get("before", {})),
        "choice": None if choice is None else choice.as_dict(),
        "search": study.facts.get("search"),
        "scenario": study.spec.scenario.name if study.spec.scenario else "",
        "for_release": study.facts["for_release"],
    }


CANDIDATES = "Candidates"
FIGURES = "Measures and choice"
RUNNING = "Run"
LARGE = 200_000  # candidates; above this a search is suggested


def _parse_measures(stated: Sequence[str]) -> tuple[str, ...]:
    """Parse measures from repeated options; commas may separate names without parameters."""
    found = [part.strip() for text in stated for part in ([text] if ":" in text else next(csv.reader([text]), []))]
    return tuple(part for part in found if part)


_SHOWN = {
    **dict.fromkeys(("attributes", "up_to", "true_swap", "pairing", "replicates"), Shown(panel=CANDIDATES)),
    "rates": Shown(panel=CANDIDATES, metavar="R,R"),
    "constraints": Shown(panel=CANDIDATES, metavar="TEXT"),
    **dict.fromkeys(("risk", "distortion"), Shown(panel=FIGURES, metavar="NAME", parse=_parse_measures)),
    "keys": Shown(panel=FIGURES),
    "objective": Shown(panel=FIGURES, metavar="RULE"),
}


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Options of a study run, apart from the file, how it is read, and the study itself."""

    fixed: list[str] | None = option(
        str(ConstraintSet.model_fields["fixed"].description), metavar="A,B", panel=CANDIDATES
    )
    differ: list[str] | None = option(
        str(ConstraintSet.model_fields["differ"].description), metavar="A,B", panel=CANDIDATES
    )
    question: Path | None = option(
        "read the study from a file; options override it", "--study", metavar="TOML", panel=RUNNING
    )
    indicators: Path | None = option(
        "measure distortion by the largest change of these key indicators first", metavar="TOML", panel=FIGURES
    )
    write_study: Path | None = option(
        "only write the study to a file, to run with --study", metavar="TOML", panel=RUNNING
    )
    plan_only: bool = option("only count the candidates; needs no key", "--plan-only", default=False, panel=RUNNING)
    search: int | None = option(
        "maximum number of specifications to evaluate (search)", metavar="BUDGET", panel=RUNNING
    )
    resume: bool = option("resume an interrupted study", "--resume", default=False, panel=RUNNING)
    threads: int | None = option("number of threads; all cores if omitted", min=1, metavar="N", panel=RUNNING)
    key: KeyFile = None
    insecure_seed: InsecureSeed = None
    output: Path | None = option(
        "directory to create: figures, map, reports (confidential)", metavar="DIR", panel=OUTPUT
    )
    pages: bool = option("write the map and the reports, not only the figures", default=True, panel=OUTPUT)
    publish_figures: bool = option(
        "include the map and the figures in the public report; the rate can be inferred from them",
        "--publish-figures",
        default=False,
        panel=OUTPUT,
    )
    force: Force = False

    def make_spec(self, parameters: dict[str, Any]) -> StudySpec:
        """Make the study from its file and the options that override it."""
        if self.fixed or self.differ:  # one more set of constraints
            together = ConstraintSet(fixed=names(self.fixed or ()), differ=names(self.differ or ()))
            parameters = {**parameters, "constraints": (*parameters.get("constraints", ()), together)}
        if self.indicators is not None:
            from safeswap.measures.utility.indicators import read_indicators

            others = parameters.get("distortion", StudySpec.model_fields["distortion"].default)
            parameters = {**parameters, "distortion": (read_indicators(self.indicators).text, *others)}
        if self.question is None:
            return StudySpec(**parameters)
        from safeswap.projects.toml import read_study_spec

        return read_study_spec(self.question, **parameters)

    def place(self, file: Path) -> Path:
        """Return the directory to create."""
        if self.output is None:
            raise typer.BadParameter("missing output: pass --output DIR")
        check_outputs([self.output], inputs=[file, *([self.key] if self.key else [])], force=self.force)
        return self.output


@command
@spec_options(StudySpec, shown=_SHOWN, omit=("others", "vary", "swaps", "first", "last"))
@request_options(StudyOptions)
@reading_options
def study(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to be released")],
    *,
    parameters: dict[str, Any],
    options: StudyOptions,
    reading: dict[str, Any],
) -> None:
    """Try many candidate releases, show their frontier and choose one.

    Candidates are only measured: no masked file is written. To get exactly the draw that was measured, mask the file
    with the chosen specification and replicate and the same key.

    Press Ctrl-C to stop; repeat the command with --resume to continue.
    """
    spec = options.make_spec(parameters)
    if options.write_study is not None:
        _write_question(console, spec, options.write_study, force=options.force)
    elif options.plan_only:
        _, total = _read(console, file, reading, spec, options.search)
        console.result({"command": "study", "candidates": total})
    else:
        _run_study(console, file, spec, reading=reading, options=options)


def _write_question(console: Console, spec: StudySpec, path: Path, *, force: bool) -> None:
    from safeswap.projects.toml import write_study_spec

    write_study_spec(spec, path, force=force)
    console.say(f"Wrote {path}; run it with --study.")
    console.result({"command": "study", "study": str(path)})


def _run_study(
    console: Console, file: Path, spec: StudySpec, *, reading: dict[str, Any], options: StudyOptions
) -> None:
    output = options.place(file)
    secret = randomness(key=options.key, insecure_seed=options.insecure_seed)
    data, _ = _read(console, file, reading, spec, options.search)
    checkpoint = _checkpoint(output, resume=options.resume, force=options.force)
    found = _run(console, data, spec, threads=options.threads, budget=options.search, checkpoint=checkpoint, **secret)
    choice, why_none = _choose(found)
    pages, figures = options.pages, options.publish_figures
    found.save(output, choice=choice, data=data, pages=pages, publish_figures=figures, force=options.force)
    checkpoint.discard()
    _show(console, found, choice, output, pages=pages)
    if choice is not None:
        console.say("\nTo write this draw as a masked file:\n" + _masking_command(choice, file, options, reading))
    if why_none is not None:
        hint = f"{why_none.hint}; all results are in {output}"
        raise InfeasibleError(why_none.message, code=why_none.code, hint=hint, output=str(output))
    console.result({"command": "study", **_document(found, choice), "output": str(output)})


def _read(
    console: Console, file: Path, reading: dict[str, Any], spec: StudySpec, search: int | None
) -> tuple[Microdata, int]:
    """Read the data and count the candidates; print their number before anything runs."""
    from safeswap import workflow
    from safeswap.studies.run import count_candidates

    with console.steps(1) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        total = count_candidates(data, spec)
    console.say(_describe_size(spec, total, search))
    return data, total


def _describe_size(spec: StudySpec, total: int, search: int | None) -> str:
    draws = f" ({plural(total // spec.replicates, 'specification')} × {plural(spec.replicates, 'replicate')})"
    text = plural(total, "candidate") + (draws if spec.replicates > 1 else "")
    if search is not None:
        return f"{text}; the search evaluates {plural(min(search, total // spec.replicates), 'specification')}."
    return f"{text}; a search (--search BUDGET) would evaluate fewer." if total > LARGE else f"{text}."


def _checkpoint(output: Path, *, resume: bool, force: bool) -> CheckpointDirectory:
    """Return the checkpoint, beside the output, in which finished blocks are kept."""
    from safeswap.studies.run import CheckpointDirectory

    place = output.with_name(f"{output.name}.unfinished")
    if resume and not place.is_dir():
        raise OutputError(
            f"there is no unfinished study {place.name!r} to resume",
            code="nothing-to-resume",
            hint="omit --resume",
            file=str(place),
        )
    kept = CheckpointDirectory(place, must_match=resume)
    if not resume and kept.digests():
        if not force:
            raise OutputError(
                f"an unfinished study is in {place.name!r}",
                code="unfinished",
                hint="continue with --resume, or start over with --force",
                file=str(place),
            )
        kept.discard()
        kept = CheckpointDirectory(place)
    return kept


def _run(console: Console, data: Microdata, spec: StudySpec, *, checkpoint: CheckpointDirectory, **how: Any) -> Study:
    from safeswap import workflow
    from safeswap.cli.app import Interrupted

    with Bar(console) as bar:
        try:
            return workflow.study(data, spec, checkpoint=checkpoint, progress=bar, **how)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped after {bar.done:,} of {plural(bar.total, 'candidate')}, kept in {checkpoint.path.name!r}",
                code="interrupted",
                hint="repeat the command with --resume to continue",
                done=bar.done,
                total=bar.total,
            ) from None


def _choose(found: Study) -> tuple[Choice | None, InfeasibleError | None]:
    """Return the choice, or the reason why there is none: the study is worth keeping in either case."""
    try:
        return found.choose(), None
    except InfeasibleError as error:
        return None, error


def _show(console: Console, found: Study, choice: Choice | None, output: Path, *, pages: bool) -> None:
    for line in rejected_lines(found):
        console.say(line)
    if found.spec.scenario is not None:
        console.say(f"Risk is measured under the scenario {escape(found.spec.scenario.name)}.")
    console.say(frontier_table(found, choice), gap=True)
    if choice is not None:
        console.say(f"\n{choice.sentence}\n")
    console.say(_places_table(output, pages=pages, choice=choice is not None))
    if not found.facts["for_release"]:
        console.warn("Made with an insecure seed: anyone can repeat the draws. NOT FOR RELEASE.")
