"""Read files, dataframes and keys, and convert back to the caller's type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from safeswap.files.sources import ReadingOptions
from safeswap.model.checked import check_types, select_stated
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata

if TYPE_CHECKING:
    from safeswap.methods.safe.spec import SafeTables


@check_types
def read(source: Any, **options: Unpack[ReadingOptions]) -> Microdata:
    """Read a file or dataframe. See :func:`safeswap.files.read.read` for the options.

    >>> import pyarrow as pa
    >>> read(pa.table({"id": [1, 2], "Sex": ["m", "f"]}), identifier="id")
    <Microdata: 2 records × 2 attributes: id, Sex>
    """
    from safeswap.files.read import read as read_source

    given = select_stated(options, ReadingOptions)
    return source if isinstance(source, Microdata) and not given else read_source(source, **given)


@contextmanager
def reading_alike() -> Iterator[None]:
    """Within the block, parse only what differs of a large text file from one that was read before."""
    from safeswap.files.delimited import reading_alike as comparing

    with comparing():
        yield


@check_types
def read_key(path: str | PathLike[str]) -> Key:
    """Read a key file; refuse one that others can read."""
    from safeswap.files.keyfile import read_key as read_key_file

    return read_key_file(path)


@check_types
def describe(data: Any, *, tolerance: int = 3) -> Any:
    """Describe the attributes, levels and small cells of a file, without showing a record.

    >>> from safeswap import datasets
    >>> describe(datasets.cps8d()).records
    48842
    """
    from safeswap.files.describe import describe as describe_data

    return describe_data(read(data), tolerance=tolerance)


@check_types
def to_frame(data: Masked | Microdata | SafeTables, *, like: Any = None) -> Any:
    """Convert to a dataframe of the caller's own type, or of the type of ``like`` (or "pandas", "polars", "arrow").

    >>> import pandas, safeswap
    >>> frame = pandas.DataFrame({"Sex": ["f", "m", "m", "f"], "Race": ["a", "b", "a", "b"]})
    >>> type(to_frame(safeswap.swap(frame, swap=["Race"], pairs=1, insecure_seed=1))).__module__.split(".")[0]
    'pandas'
    """
    if isinstance(data, Masked | Microdata):
        from safeswap.files.frames import to_frame as as_frame
        from safeswap.releases.ledger import configured_ledger
        from safeswap.releases.register import EXPORTED, FileRegister, enter

        enter(data, EXPORTED, known=FileRegister(configured_ledger()))
        return as_frame(data, like=like)
    from safeswap.projects.tables import to_long

    return to_long(data, like=like)


def find_frame_type(data: Microdata) -> str:
    """Return the library of the caller's dataframe, by its name in narwhals."""
    import narwhals as nw

    if data.origin is None:
        return "pyarrow"
    frame = nw.from_native(data.origin, pass_through=True)
    return frame.implementation.value if isinstance(frame, nw.DataFrame) else "pyarrow"
