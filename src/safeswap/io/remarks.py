"""What a look through a bundle found: some of it to be told, some of it reason enough not to release."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from safeswap.errors import UnsafeRelease

# What a spreadsheet takes for the beginning of a formula, the full-width forms included.
_STARTS_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)*|[.,]\d+)([eE][+-]?\d+)?%?")


@dataclass(frozen=True, kw_only=True)
class Remark:
    """One finding: where, what, and whether it stands in the way of a release. It holds no value of a record."""

    code: str
    message: str
    refuses: bool
    column: str = ""
    file: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for ``--json`` and for the verifier's report."""
        return {
            "code": self.code,
            "message": self.message,
            "refuses": self.refuses,
            "column": self.column,
            "file": self.file,
        }


def refusal(code: str, message: str, *, column: str = "", file: str = "") -> Remark:
    """A finding that forbids the release."""
    return Remark(code=code, message=message, refuses=True, column=column, file=file)


def warning(code: str, message: str, *, column: str = "", file: str = "") -> Remark:
    """A finding that somebody should know of."""
    return Remark(code=code, message=message, refuses=False, column=column, file=file)


# Of columns that cannot leave under their names.
_LEFT_OUT = "nothing was released; leave the column out (drop, on the command line --drop), or give it another name"
_HINTS = {
    **dict.fromkeys(("index-column", "formula-name", "invisible-name"), _LEFT_OUT),
    "household-split": "nothing was released; mask the attribute alike for all records of a household, leave it as "
    "it is, or leave out what tells who belongs together (drop, on the command line --drop)",
    "geography-split": "nothing was released; swap all levels of the geography together, hold the coarser ones fixed "
    "while a finer one is swapped, or leave levels out (drop, on the command line --drop)",
    "read-off": "nothing was released; mask both columns together, or leave one of them out (drop, on the command line "
    "--drop)",
    "unconfirmed-identifier": "nothing was released; state what the column is (kinds, or its kind in the schema file) "
    "and mask again: identifiers and households get new numbers; or leave it out (drop, on the command line --drop)",
}


def refuse_if_any(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """Raise for the first finding that forbids the release; otherwise give back the others."""
    remarks = tuple(remarks)
    reasons = [remark for remark in remarks if remark.refuses]
    if reasons:
        first = reasons[0]
        raise UnsafeRelease(
            first.message + (f" (and {len(reasons) - 1:,} more findings)" if len(reasons) > 1 else ""),
            code=first.code,
            hint=_HINTS.get(first.code, "nothing was released; see the findings and mask or describe the data anew"),
            column=first.column,
            file=first.file,
            findings=[remark.as_dict() for remark in reasons],
        )
    return remarks


def is_formula(text: str) -> bool:
    """Whether a spreadsheet that opens a CSV file would try to run this cell; numbers with a sign are just numbers.

    >>> [is_formula(text) for text in ("=1+1", "-5", "-5.2e-3", "-", "@SUM(A1)", "a=b")]
    [True, False, False, False, True, False]
    """
    return len(text) > 1 and bool(_STARTS_FORMULA.match(text)) and not _NUMBER.fullmatch(text)


def name_remarks(names: Iterable[str]) -> list[Remark]:
    """Column names that must not stand in a header: formulas, invisible ones, and a dataframe's row numbers."""
    from safeswap.model.release import is_index_column

    remarks = []
    for position, name in enumerate(names, start=1):
        if is_index_column(name):
            remarks.append(refusal("index-column", f"column {position:,} is a row number of a dataframe", column=name))
        elif _STARTS_FORMULA.match(name):
            message = f"the name of column {position:,} would be run as a formula by a spreadsheet"
            remarks.append(refusal("formula-name", message, column=name))
        elif not name.isprintable():
            message = f"the name of column {position:,} holds characters that cannot be seen"
            remarks.append(refusal("invisible-name", message, column=name))
    return remarks
