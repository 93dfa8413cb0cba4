"""Write the confidentiality plot as a page, a picture, or a table of records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from safeswap.errors import OutputError, SpecError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.measures.plot.values import ConfidentialityPlot, Policy

Version = Literal["internal", "public"]

PICTURES = (".html", ".svg", ".png")
RECORDS = (".csv", ".parquet")


def write_plot(
    plot: ConfidentialityPlot,
    path: str | os.PathLike[str],
    *,
    version: Version = "internal",
    second: Policy | None = None,
    title: str = "",
    force: bool = False,
) -> None:
    """Write the plot in the format of the file's suffix: html, svg or png; csv or parquet for a row per record.

    Files that name records are readable by their owner only, and have no public version.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from safeswap.measures.plot.plots import make_plot
    >>> from safeswap.model.microdata import Microdata
    >>> from safeswap.model.schema import Attribute, Schema
    >>> data = Microdata(pa.table({"Sex": ["f", "f", "m"]}), Schema(attributes=(Attribute(name="Sex"),)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_plot(make_plot(data, data, ["Sex"]), Path(folder) / "plot.svg", version="public")
    ...     (Path(folder) / "plot.svg").read_text().startswith("<?xml")
    True
    """
    suffix = Path(path).suffix.lower()
    if suffix in RECORDS:
        _write_records(plot, path, version=version, force=force)
        return
    if suffix not in PICTURES:
        raise OutputError(
            "the file's suffix names no format of a plot",
            code="unknown-format",
            hint="use one of " + ", ".join((*PICTURES, *RECORDS)),
            file=os.fspath(path),
        )
    content = _picture(plot, suffix, version=version, second=second, title=title)
    with atomic_write(path, force=force, mode=PRIVATE_FILE if version == "internal" else 0o644) as part:
        part.write_bytes(content)


def _picture(plot: ConfidentialityPlot, suffix: str, *, version: Version, second: Policy | None, title: str) -> bytes:
    from safeswap.charts.confidentiality import plot_html, plot_png, plot_svg

    if suffix == ".html":
        return plot_html(plot, version=version, second=second, title=title).encode()
    if suffix == ".svg":
        return plot_svg(plot, version=version, second=second).encode()
    return plot_png(plot, version=version, second=second)


def _write_records(plot: ConfidentialityPlot, path: str | os.PathLike[str], *, version: Version, force: bool) -> None:
    from safeswap.files.write import write_csv, write_parquet

    if version == "public":
        raise SpecError(
            "the figures of single records are not for the public",
            code="not-public",
            hint='write them with version="internal", or write a picture',
        )
    writer = write_csv if Path(path).suffix.lower() == ".csv" else write_parquet
    writer(plot.table(), path, force=force, mode=PRIVATE_FILE)
