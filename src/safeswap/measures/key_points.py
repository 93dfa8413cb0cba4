"""Numeric key variables as points: parsed, on the scale and in the metric in which an intruder would compare them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from safeswap.errors import SpecError
from safeswap.kernels import moments
from safeswap.kernels.types import Floats
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import Kind
from safeswap.model.several import several

Scale = Literal["log", "asinh", "linear"]
Distance = Literal["relative", "standardised", "mahalanobis"]

SCALES: tuple[Scale, ...] = ("log", "asinh", "linear")
DISTANCES: tuple[Distance, ...] = ("relative", "standardised", "mahalanobis")


def check_numeric(data: Microdata, keys: tuple[str, ...]) -> None:
    """Refuse keys that are described as something else than numbers; the original's description counts."""
    for name in keys:
        kind = data.schema[name].kind
        if kind not in (Kind.NUMERIC, Kind.WEIGHT):
            raise SpecError(
                f"{name!r} is {kind.value}, and distances need numeric keys",
                code="key-not-numeric",
                hint="describe it as numeric, or plot categorical keys by their frequency",
                attribute=name,
            )


def key_values(data: Microdata, keys: tuple[str, ...], *, scale: Scale, file: str) -> Floats:
    """One line per record, one column per key; a missing value is not a number.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="turnover", kind="numeric"),))
    >>> data = Microdata(pa.table({"turnover": [1.0, None]}), schema)
    >>> key_values(data, ("turnover",), scale="log", file="original").tolist()
    [[0.0], [nan]]
    """
    columns = [_scaled(finite_numbers(data, name), name, scale, file) for name in keys]
    return np.stack(columns, axis=1) if columns else np.empty((len(data), 0))


def _scaled(values: Floats, name: str, scale: Scale, file: str) -> Floats:
    if scale != "log":
        return values if scale == "linear" else np.arcsinh(values)
    beyond = int(np.count_nonzero(values <= 0))
    if beyond:
        raise SpecError(
            f"{name!r} has no logarithm in {several(beyond, 'record')} of the {file} file",
            code="no-logarithm",
            hint='scale="asinh", which is like a logarithm and takes every number; or scale="linear"',
            attribute=name,
            records=beyond,
        )
    return np.log(values)


def metric(archive: Floats, distance: Distance, keys: tuple[str, ...]) -> Floats:
    """The matrix by which points are multiplied so that Euclid's distance between them is the one asked for.

    >>> metric(np.array([[1.0], [3.0], [5.0]]), "standardised", ("turnover",)).tolist()
    [[0.5]]
    """
    sides = archive.shape[1]
    if distance == "relative":
        return np.eye(sides)
    known = archive[~np.isnan(archive).any(axis=1)]
    covariance = moments.covariance(known)
    variances = np.diag(covariance)
    if not (variances > 0).all():
        raise SpecError(
            f"{keys[int(np.argmin(variances))]!r} does not vary in the archive and has no standard deviation",
            code="constant-key",
            hint='leave it out, or use distance="relative"',
        )
    inverse = np.diag(1.0 / np.sqrt(variances))
    if distance == "standardised":
        return np.asarray(inverse)
    values, vectors = np.linalg.eigh(inverse @ covariance @ inverse)
    if values[0] < 1e-12 * sides:
        raise SpecError(
            "one of the keys follows from the others: there is no Mahalanobis distance",
            code="singular-keys",
            hint='leave out a key, or use distance="standardised"',
        )
    return np.asarray(inverse @ (vectors / np.sqrt(values)) @ vectors.T)
