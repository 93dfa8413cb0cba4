"""A file as combinations of keys see it: the distinct records over the keys, blanks told apart from values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from safeswap.errors import InputError
from safeswap.kernels.combinations import Classes, classes
from safeswap.kernels.types import Codes
from safeswap.model.combination import Missing
from safeswap.model.microdata import Microdata, smallest_code_type
from safeswap.model.several import several
from safeswap.model.value_order import missing_codes, numbers, ranked


def key_classes(data: Microdata, names: tuple[str, ...], *, missing: Missing, weight: str | None = None) -> Classes:
    """The distinct records over these keys, in an order that is the same whatever the order of the rows.

    A blank is what is missing in the file; codes that the schema says stand for "no answer" are blanks too, unless
    missing values count as values of their own.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex", missing=("?",)),))
    >>> data = Microdata(pa.table({"Sex": ["m", "?", None, "f"]}), schema)
    >>> key_classes(data, ("Sex",), missing="none").sizes.tolist()
    [1, 1, 2]
    >>> key_classes(data, ("Sex",), missing="own").sizes.tolist()
    [1, 1, 1, 1]
    """
    keys = [_key(data, name, unite=missing != "own") for name in names]
    weights = None if weight is None else _weights(data, weight)
    return classes(
        [codes for codes, _ in keys], [blank + 1 for _, blank in keys], [blank for _, blank in keys], weights
    )


def _key(data: Microdata, name: str, *, unite: bool) -> tuple[Codes, int]:
    """The column as ranks of its values, and the code of a blank, which is above them all."""
    codes, _ = ranked(data, name)
    coded = data.coded(name)
    blank = len(coded.levels)
    dtype = smallest_code_type(blank + 1)
    stated = missing_codes(data, name)
    if not (unite and stated[:blank].any()):
        return codes.astype(dtype, copy=False), blank
    return np.where(stated[coded.codes], dtype.type(blank), codes.astype(dtype, copy=False)), blank


def _weights(data: Microdata, name: str) -> npt.NDArray[np.float64]:
    found = numbers(data, name)
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        raise InputError(
            f"{several(int(np.count_nonzero(wrong)), 'record has', 'records have')} "
            f"a weight {name!r} that is missing, negative or not a number",
            code="bad-weight",
            hint="complete the weights first",
            column=name,
        )
    return found
