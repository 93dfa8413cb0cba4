"""The values of a column that have been met, each with its place: kept so that no batch costs more than it holds.

Areas of a country are too many to be hashed anew with every batch, be they numbers or texts.
"""

from __future__ import annotations

import secrets
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.engines.identity import column_blocks
from safeswap.kernels import keyed
from safeswap.kernels.integer_codes import IntegerCodes
from safeswap.kernels.types import UInt32s


class KnownLevels(Protocol):
    """Values by place."""

    def __len__(self) -> int: ...

    @property
    def levels(self) -> pa.Array:
        """The values in the order in which they first came."""
        ...

    def places(self, values: pa.Array) -> UInt32s:
        """The places of values, none of which is missing; new ones take the next places in their order."""
        ...


def known_levels(kind: pa.DataType) -> KnownLevels:
    """Nothing known yet of values of a type.

    >>> known = known_levels(pa.string())
    >>> known.places(pa.array(["b"])).tolist(), known.places(pa.array(["a", "b"])).tolist(), known.levels.to_pylist()
    ([0], [1, 0], ['b', 'a'])
    """
    if pa.types.is_integer(kind):
        return _Numbers(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _Texts(kind)
    return _Values(kind)


class _Numbers:
    """Whole numbers; they may repeat among those that are asked for."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._numbers = IntegerCodes()
        self._levels = pa.array([], kind)

    def __len__(self) -> int:
        return len(self._numbers.levels)

    @property
    def levels(self) -> pa.Array:
        if len(self._levels) < len(self):
            numbers = self._numbers.levels
            whole = self._kind == pa.uint64()
            self._levels = pa.array(numbers.view(np.uint64)) if whole else pa.array(numbers).cast(self._kind)
        return self._levels

    def places(self, values: pa.Array) -> UInt32s:
        numbers = values.to_numpy(zero_copy_only=False)
        return self._numbers.code(numbers.view(np.int64) if numbers.dtype == np.uint64 else numbers)


class _Texts:
    """Texts, all different at a time, known by two words that are random but for those who have the key.

    The first word finds the place and the second tells whether it is the right one. Should two texts share the first
    word, which in a country's worth of areas happens once in a million runs, all begins anew with another key.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._parts = [pa.array([], kind)]
        self._begin()

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def levels(self) -> pa.Array:
        if len(self._parts) > 1:
            self._parts = [pa.concat_arrays(self._parts)]
        return self._parts[0]

    def places(self, values: pa.Array) -> UInt32s:
        first = self._parts[0]
        if len(values) <= len(first) and values.equals(first.slice(0, len(values))):
            return np.arange(len(values), dtype=np.uint32)  # as mostly, where there are few
        found = self._entered(values)
        while found is None:
            self._begin()
            if self._entered(self.levels) is not None:
                found = self._entered(values)
        fresh = np.flatnonzero(found >= len(self))
        if len(fresh):
            self._parts.append(values.take(pa.array(fresh)))
        return found

    def _begin(self) -> None:
        self._key = secrets.token_bytes(32)
        self._numbers = IntegerCodes()
        self._second: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)

    def _entered(self, values: pa.Array) -> UInt32s | None:
        """The places of texts; None if two of all share the first word."""
        words = keyed.encrypt(column_blocks(values, self._key), self._key)
        known = len(self._numbers.levels)
        places: UInt32s = self._numbers.code(np.ascontiguousarray(words[:, 0]).view(np.int64))
        number = len(self._numbers.levels)
        if number > len(self._second):
            self._second = np.concatenate([self._second, np.zeros(number // 2 + number - known, dtype=np.uint64)])
        fresh = places >= known
        self._second[places[fresh][::-1]] = words[fresh, 1][::-1]
        return places if bool((self._second[places] == words[:, 1]).all()) else None


class _Values:
    """Any other values, all different at a time, as Arrow tells them apart."""

    def __init__(self, kind: pa.DataType) -> None:
        self.levels = pa.array([], kind)

    def __len__(self) -> int:
        return len(self.levels)

    def places(self, values: pa.Array) -> UInt32s:
        none = pa.array([], pa.int32())
        every = pa.array(np.arange(len(values), dtype=np.int32))
        both = pa.chunked_array(
            [
                pa.DictionaryArray.from_arrays(none, self.levels),
                pa.DictionaryArray.from_arrays(every, values),
            ]
        ).unify_dictionaries()
        self.levels = both.chunk(0).dictionary
        places: UInt32s = both.chunk(1).indices.to_numpy(zero_copy_only=False).astype(np.uint32)
        return places
