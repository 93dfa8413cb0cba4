"""Whether names repeat, told in one pass where they are whole numbers, as they mostly are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from safeswap.kernels import sparse
from safeswap.kernels.types import Identity

_SPARSEST = 64  # bits per name: a bitmap that is larger than the names themselves is not worth having


def has_duplicates(names: Identity) -> bool:
    """Whether any name occurs twice. Names are integers, or rows of two words.

    >>> has_duplicates(np.array([3, 1, 2])), has_duplicates(np.array([3, 1, 3]))
    (False, True)
    >>> has_duplicates(np.array([[1, 2], [2, 1], [1, 2]], np.uint64))
    True
    """
    if len(names) < 2:
        return False
    if names.ndim == 2:
        return _repeated_pairs(names)
    numbers = names.view(np.int64)
    if _ascends(numbers):
        return False
    least, most = int(numbers.min()), int(numbers.max())
    if most - least < _SPARSEST * len(numbers):
        return bool(_marked_twice(numbers, least, np.zeros((most - least) // 8 + 1, dtype=np.uint8)))
    return len(sparse.distinct(numbers.view(np.uint64))[0]) < len(numbers)


def _repeated_pairs(names: Identity) -> bool:
    """Rows that agree in a mixture of their words are compared word by word."""
    words = np.ascontiguousarray(names).view(np.uint64)
    mixture = words[:, 0] ^ (words[:, 1] * np.uint64(0x9E3779B97F4A7C15))
    suspects = words[sparse.occurrences(mixture) > 1]
    return len(np.unique(suspects, axis=0)) < len(suspects)


@njit(cache=True, nogil=True)
def _ascends(numbers: npt.NDArray[np.int64]) -> bool:
    for i in range(1, len(numbers)):  # noqa: SIM110  (a loop that Numba compiles)
        if numbers[i] <= numbers[i - 1]:
            return False
    return True


@njit(cache=True, nogil=True)
def _marked_twice(numbers: npt.NDArray[np.int64], least: int, marks: npt.NDArray[np.uint8]) -> bool:
    for number in numbers:
        place = number - least
        bit = np.uint8(1) << np.uint8(place & 7)
        if marks[place >> 3] & bit:
            return True
        marks[place >> 3] |= bit
    return False
