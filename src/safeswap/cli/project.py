"""``safeswap swap --project``: a WebSwap project is run, and its output and log are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safeswap.cli.console import Console, table
from safeswap.cli.outputs import check_outputs


def run_project(console: Console, specs: Path, *, secret: dict[str, Any], audit: Path | None, force: bool) -> None:
    """Swap as the project says; with an audit directory the result can be released and undone."""
    from safeswap import workflow
    from safeswap.cli.masking import INSIDE, tell
    from safeswap.io.masking import both_or_neither, note
    from safeswap.io.webswap import read_project

    with console.steps(3) as steps:
        steps.at("reading")
        project = read_project(specs)
        results = [project.path("output"), project.path("log")]
        check_outputs(results, inputs=[specs, project.path("data"), project.path("description")], force=force)
        data = project.microdata()
        steps.at("masking")
        masked = workflow.swap(data, project.swap_spec(), **secret)
        steps.at("writing")
        with both_or_neither(audit, results[0], new=[] if force else results):
            project.write_results(masked, force=force)
            reading = {"delimiter": ",", "encoding": "utf-8", "quote": '"'}
            record = note(masked, results[0], audit=audit, reading=reading) if audit else None
    tell(console, masked)
    places = [("masked file", results[0]), ("log", results[1]), *([("audit record", record)] if record else [])]
    console.say("")
    console.say(table(["made", "where", ""], [(*place, INSIDE) for place in places]))
    if record is None:
        console.warn("No audit record was kept (--audit DIR): the output can be neither released nor undone.")
    where = {"output": str(results[0]), "log": str(results[1]), "audit": str(record) if record else None}
    console.result({"command": "swap", **masked.as_dict(), **where})
