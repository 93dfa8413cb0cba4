"""How much a file may ask of the machine before it is refused."""

from __future__ import annotations

from dataclasses import dataclass

from safeswap.errors import InputError
from safeswap.model.several import several


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what a file may declare or turn out to hold; raise them for a file that is known to be honest.

    A few hundred bytes can declare a billion records, and a few kilobytes can decompress to terabytes. So what a file
    says about itself is checked before anything is decoded, and what is decompressed is counted on the way.

    >>> Limits().max_columns
    20000
    >>> Limits(max_records=10).check(file="x.parquet", records=11)
    Traceback (most recent call last):
    safeswap.errors.InputError: the file holds 11 records; the limit is 10
    """

    max_columns: int = 20_000
    max_records: int = 1_000_000_000
    max_decoded_bytes: int = 16 * 2**30

    def check(
        self, *, file: str, columns: int | None = None, records: int | None = None, decoded_bytes: int | None = None
    ) -> None:
        """Refuse what is above a limit; what is not known is not checked."""
        for found, limit, what in (
            (columns, self.max_columns, "columns"),
            (records, self.max_records, "records"),
            (decoded_bytes, self.max_decoded_bytes, "decoded_bytes"),
        ):
            if found is not None and found > limit:
                raise _above(file, found, limit, what)


def _above(file: str, found: int, limit: int, what: str) -> InputError:
    words = {
        "columns": f"the file has {several(found, 'column')}; the limit is {limit:,}",
        "records": f"the file holds {several(found, 'record')}; the limit is {limit:,}",
        "decoded_bytes": f"the file would take {found:,} bytes of memory or more; the limit is {limit:,}",
    }
    code = {"columns": "too-many-columns", "records": "too-many-records", "decoded_bytes": "too-large"}
    return InputError(
        words[what],
        code=code[what],
        hint=f"if the file is what it should be, allow more with Limits(max_{what}=…)",
        file=file,
        found=found,
        limit=limit,
    )


DEFAULT_LIMITS = Limits()
